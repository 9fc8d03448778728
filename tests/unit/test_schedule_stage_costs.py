"""Timelines of stages that differ, against closed forms by hand and against what each action waits for."""

import itertools
from dataclasses import replace

import pytest

from coordinator.schedule.actions import PlanError
from coordinator.schedule.plan import Plan, Schedule, make_forward_plan, make_plan
from coordinator.schedule.recompute import Recompute
from coordinator.schedule.simulate import Costs, simulate
from coordinator.schedule.stage_costs import StageCosts


def costs(
    forward: tuple[float, ...], backward: tuple[float, ...], *, workers: int | None = None, **others: object
) -> StageCosts:
    """Return costs of stages; what is not said is free, and the halves of a backward are a third and two thirds."""
    num_workers = len(forward) if workers is None else workers
    zeros = (0.0,) * num_workers
    said: dict[str, object] = {
        "input_gradient": tuple(cost / 3 for cost in backward),
        "weight_gradient": tuple(cost * 2 / 3 for cost in backward),
        "transfer": (0.0,) * (len(forward) - 1),
        "reduce": zeros,
        "optimizer": zeros,
        **others,
    }
    return StageCosts(forward=forward, backward=backward, **said)  # type: ignore[arg-type]


FORWARD, BACKWARD = (1.0, 5.0, 2.0, 3.0), (7.0, 4.0, 11.0, 2.0)


def gpipe_seconds(m: int, forward: tuple[float, ...], backward: tuple[float, ...]) -> float:
    """All forwards run through the pipe at the pace of the slowest one, then all backwards."""
    return sum(forward) + (m - 1) * max(forward) + sum(backward) + (m - 1) * max(backward)


@pytest.mark.parametrize("m", [1, 2, 8])
def test_simulate_of_gpipe_goes_at_the_pace_of_the_slowest_stage_each_way(m: int) -> None:
    plan = make_plan("gpipe", num_workers=4, num_microbatches=m)
    timeline = simulate(plan, costs(FORWARD, BACKWARD))
    assert timeline.makespan == gpipe_seconds(m, FORWARD, BACKWARD)
    assert timeline.busy == tuple(m * (f + b) for f, b in zip(FORWARD, BACKWARD, strict=True))
    assert timeline.ideal == m * 13


@pytest.mark.parametrize("m", [4, 9])
def test_simulate_of_1f1b_whose_last_stage_is_slowest_adds_the_way_there_and_back(m: int) -> None:
    forward, backward = (1.0, 2.0, 1.5, 6.0), (2.0, 3.0, 2.5, 9.0)
    timeline = simulate(make_plan("1f1b", num_workers=4, num_microbatches=m), costs(forward, backward))
    assert timeline.makespan == sum(forward[:3]) + m * 15 + sum(backward[:3])


@pytest.mark.parametrize("m", [2, 9])
def test_simulate_of_1f1b_whose_first_stage_is_slowest_is_as_long_as_that_one_computes(m: int) -> None:
    # The other stage's 3 + 2 are done while the first one is at a forward of 6, or a backward of 8.
    timeline = simulate(make_plan("1f1b", num_workers=2, num_microbatches=m), costs((6.0, 3.0), (8.0, 2.0)))
    assert timeline.makespan == m * 14
    assert timeline.bubbles == pytest.approx((0, 1 - 5 / 14))


def test_simulate_of_a_slow_transfer_is_later_by_its_way_there_and_back() -> None:
    plan = make_plan("gpipe", num_workers=4, num_microbatches=8)
    timeline = simulate(plan, costs(FORWARD, BACKWARD, transfer=(0.25, 30.0, 0.5)))
    assert timeline.makespan == gpipe_seconds(8, FORWARD, BACKWARD) + 2 * 30.75


def test_simulate_between_stages_of_one_worker_takes_no_transfer() -> None:
    # The point of the V: stages 1 and 2 are both on worker 1.
    plan = make_forward_plan(
        make_plan("zbv", num_workers=2, num_chunks=2, num_microbatches=4).placement, num_microbatches=1
    )
    timeline = simulate(plan, costs((1.0,) * 4, (1.0,) * 4, workers=2, transfer=(10.0, 100.0, 20.0)))
    assert timeline.makespan == 4 + 10 + 20


@pytest.mark.parametrize(("i", "w", "makespan"), [(1.0, 1.0, 25.5), (2.0, 1.0, 35.0)])
def test_simulate_of_zbv_with_unequal_halves_is_the_published_one(i: float, w: float, makespan: float) -> None:
    """P=4, M=8: a full stage's F, I, W; a chunk has half of each."""
    plan = make_plan("zbv", num_workers=4, num_chunks=2, num_microbatches=8)
    eight = {
        "input_gradient": (i / 2,) * 8,
        "weight_gradient": (w / 2,) * 8,
    }
    timeline = simulate(plan, costs((0.5,) * 8, ((i + w) / 2,) * 8, workers=4, **eight))
    assert timeline.makespan == makespan


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zbh1"])
def test_simulate_of_a_first_backward_that_takes_longer(schedule: str) -> None:
    """Whole or its first half, it is one of stage 0, and longer by 3."""
    plan = make_plan(schedule, num_workers=2, num_microbatches=4)
    backwards = [action for action in plan.orders[0] if action.op in ("B", "I")]
    plain, longer = (simulate(plan, costs((1.0, 1.5), (2.0, 2.5), first_backward=by)) for by in (0.0, 3.0))
    for worker, (before, after) in enumerate(zip(plain.workers, longer.workers, strict=True)):
        for one, other in zip(before, after, strict=True):
            more = 3.0 if (worker, one.action) == (0, backwards[0]) else 0.0
            assert other.end - other.start == pytest.approx(one.end - one.start + more)
    assert longer.busy == pytest.approx((plain.busy[0] + 3.0, plain.busy[1]))


def test_simulate_of_a_first_backward_waits_for_nobody_but_stage_0() -> None:
    """GPipe, one microbatch, two stages of F 1 and B 2: it ends in the backward of stage 0."""
    plan = make_plan("gpipe", num_workers=2, num_microbatches=1)
    timeline = simulate(plan, costs((1.0, 1.0), (2.0, 2.0), first_backward=3.0))
    assert (timeline.makespan, timeline.busy) == (9.0, (6.0, 3.0))


@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_starts_each_action_once_its_worker_and_its_input_are_there(schedule: Schedule) -> None:
    plan = make_plan(
        schedule,
        num_workers=3,
        num_chunks=2 if schedule in ("interleaved", "looped_bfs", "zbv", "dualpipev") else 1,
        num_microbatches=6,
    )
    stages, worker_of = plan.placement.num_stages, plan.placement.worker_by_stage
    time = {
        (stage, op): base + 0.375 * (stage * step % 5)
        for op, base, step in (("F", 1.0, 1), ("B", 2.0, 2), ("I", 0.5, 3), ("W", 1.25, 4))
        for stage in range(stages)
    }
    tables = {op: tuple(time[stage, op] for stage in range(stages)) for op in "FBIW"}
    way, optimizer = tuple(0.125 * (1 + s) for s in range(stages - 1)), (3.0, 0.5, 7.0)
    timeline = simulate(
        plan,
        costs(
            tables["F"],
            tables["B"],
            workers=3,
            input_gradient=tables["I"],
            weight_gradient=tables["W"],
            transfer=way,
            optimizer=optimizer,
        ),
    )
    ends = {
        (span.action.stage, span.action.op.replace("I", "B"), span.action.microbatch): span.end
        for spans in timeline.workers
        for span in spans
    }
    for worker, spans in enumerate(timeline.workers):
        free = optimizer[worker]
        for span in spans:
            stage, op, microbatch = span.action
            source = {"F": stage - 1, "W": stage}.get(op, stage + 1)
            ready = ends.get((source, "F" if op == "F" else "B", microbatch), 0.0)
            if 0 <= source < stages and worker_of[source] != worker:
                ready += way[min(stage, source)]
            assert span.start == pytest.approx(max(free, ready)), span
            assert span.end - span.start == pytest.approx(time[stage, op.value])
            free = span.end
    assert timeline.makespan == pytest.approx(max(spans[-1].end for spans in timeline.workers))


@pytest.mark.parametrize(
    ("end", "later"),
    [
        ({"step_end": 5.0}, 5),
        ({"optimizer": (5.0, 0.0, 0.0)}, 5),  # the first forward waits for it
        ({"optimizer": (0.0, 0.0, 9.0)}, 7),  # the first activation comes after 1 + 1
        ({"reduce": (5.0, 0.0, 0.0)}, 5),  # the first stage ends last
        ({"reduce": (0.0, 0.0, 9.0)}, 5),  # the last stage ends 2 + 2 before
    ],
)
def test_simulate_of_a_steps_end_lasts_longer_by_what_no_worker_hides(end: dict[str, object], later: float) -> None:
    plan = make_plan("1f1b", num_workers=3, num_microbatches=6)
    equal = costs((1.0,) * 3, (2.0,) * 3)
    assert simulate(plan, equal).makespan == simulate(plan).makespan == (6 + 2) * 3
    assert simulate(plan, replace(equal, **end)).makespan == 24 + later  # type: ignore[arg-type]


def test_simulate_counts_the_update_as_work_and_the_wait_for_the_vote_as_none() -> None:
    plan = make_plan("1f1b", num_workers=2, num_microbatches=4)
    timeline = simulate(plan, costs((1.0,) * 2, (2.0,) * 2, optimizer=(3.0, 0.0), reduce=(1.0, 1.0), step_end=2.0))
    assert (timeline.makespan, timeline.busy, timeline.ideal) == (15 + 3 + 1 + 2, (15, 12), 15)
    assert timeline.bubble_fraction == pytest.approx(1 - 27 / 42)


@pytest.mark.parametrize(("schedule", "half"), [("gpipe", False), ("zbh1", True)])
def test_simulate_of_recompute_adds_a_stages_own_forward_to_the_backward_or_its_first_half(
    schedule: str, half: bool
) -> None:
    recompute = Recompute(parts=(0, 1, 2, 2), whole=2, kept_microbatch=3)
    plan = make_plan(schedule, num_workers=4, num_microbatches=8)
    spans = list(itertools.chain(*simulate(plan, costs(FORWARD, BACKWARD), recompute).workers))
    for stage, share in enumerate((0, 0.5, 1, 1)):
        lengths = {span.action.op.value: span.end - span.start for span in spans if span.action[::2] == (stage, 5)}
        kept = {span.action.op.value: span.end - span.start for span in spans if span.action[::2] == (stage, 3)}
        again = {op: lengths[op] - kept[op] for op in lengths}
        assert again.pop("I" if half and "I" in again else "B") == pytest.approx(share * FORWARD[stage])
        assert all(more == pytest.approx(0) for more in again.values())


@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b", "zbh1"])
def test_simulate_of_alike_stages_is_that_of_one_cost_for_all(schedule: str) -> None:
    plan = make_plan(schedule, num_workers=4, num_microbatches=8)
    one = Costs(forward=1.0, input_gradient=1.5, weight_gradient=0.5, comm=0.25)
    alike = costs((1.0,) * 4, (2.0,) * 4, input_gradient=(1.5,) * 4, weight_gradient=(0.5,) * 4, transfer=(0.25,) * 3)
    assert simulate(plan, alike) == simulate(plan, one)


def plan_of(num_workers: int) -> Plan:
    return make_plan("1f1b", num_workers=num_workers, num_microbatches=2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"backward": (1.0,)}, "costs backward has 1 entries, need 2"),
        ({"transfer": ()}, "costs transfer has 0 entries, need 1"),
        ({"optimizer": (1.0,)}, "costs optimizer has 1 entries, need 2"),
        ({"forward": (1.0, 0.0)}, "cost forward 1 is 0.0, need a finite number above 0"),
        ({"weight_gradient": (float("nan"), 1.0)}, "cost weight_gradient 0 is nan"),
        ({"reduce": (-1.0, 0.0)}, "cost reduce 0 is -1.0, need a finite number at least 0"),
        ({"step_end": float("inf")}, "cost step_end 0 is inf"),
    ],
)
def test_stage_costs_of_a_wrong_number_or_length_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match="^" + said.replace("(", "\\(")):
        replace(costs((1.0, 2.0), (1.0, 2.0)), **wrong)  # type: ignore[arg-type]


def test_simulate_refuses_costs_of_other_stages_or_workers() -> None:
    with pytest.raises(PlanError, match="those of 2 stages, but the plan has 3"):
        simulate(plan_of(3), costs((1.0, 2.0), (1.0, 2.0)))
    with pytest.raises(PlanError, match="those of 1 workers, but the plan has 2"):
        simulate(plan_of(2), costs((1.0, 2.0), (1.0, 2.0), workers=1))
