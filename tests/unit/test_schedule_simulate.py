"""Predicted timelines: what each action waits for, latency, idle time. Reference numbers: test_plans_tables."""

import functools
import itertools

import pytest

from coordinator.schedule.actions import Action, Op, PlanError
from coordinator.schedule.execute import DeadlockError, execute
from coordinator.schedule.limits import SizeError
from coordinator.schedule.lowering import lower
from coordinator.schedule.placement import looping, v_shaped
from coordinator.schedule.plan import Plan, Schedule, make_forward_plan, make_plan
from coordinator.schedule.simulate import Costs, simulate

UNEQUAL = Costs(forward=0.75, input_gradient=1.25, weight_gradient=0.5, comm=0.375)


@functools.cache
def plans(schedule: Schedule) -> list[Plan]:
    """Return plans of a schedule, of all sizes of these that it runs."""
    fitting = []
    for p, v, m in itertools.product((1, 2, 3, 5), (1, 2, 3), (1, 4, 10)):
        try:
            fitting.append(make_plan(schedule, num_workers=p, num_chunks=v, num_microbatches=m, num_slices=2))
        except SizeError:
            continue
    return fitting


@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_starts_each_action_once_its_worker_and_its_input_are_there(schedule: Schedule) -> None:
    assert plans(schedule)
    for plan in plans(schedule):
        timeline = simulate(plan, UNEQUAL)
        worker_of, num_chunks = plan.placement.worker_by_stage, plan.placement.num_chunks
        # Whatever made the input's gradient of a stage, whole or half.
        ends = {
            (span.action.stage, span.action.op.replace("I", "B"), span.action.microbatch): span.end
            for worker in timeline.workers
            for span in worker
        }
        for worker, spans in enumerate(timeline.workers):
            free = 0.0
            for span in spans:
                stage, op, microbatch = span.action
                cost = {"F": 0.75, "I": 1.25, "W": 0.5, "B": 1.75}[op]
                source = {"F": stage - 1, "I": stage + 1, "B": stage + 1, "W": stage}[op]
                made = ends.get((source, "F" if op == "F" else "B", microbatch), 0.0)
                travels = 0 <= source < len(worker_of) and worker_of[source] != worker
                assert span.start == pytest.approx(max(free, made + 0.375 * travels)), (plan.schedule, span)
                assert span.end - span.start == pytest.approx(cost / num_chunks)
                free = span.end


@pytest.mark.parametrize("costs", [Costs(), UNEQUAL], ids=["unit costs", "unequal costs"])
@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_of_each_worker_adds_busy_and_idle_up_to_the_makespan(schedule: Schedule, costs: Costs) -> None:
    for plan in plans(schedule):
        timeline = simulate(plan, costs)
        idle = []
        for spans in timeline.workers:
            gaps = [after.start - before.end for before, after in itertools.pairwise(spans)]
            idle.append(spans[0].start + sum(gaps) + timeline.makespan - spans[-1].end)
        for worker, gap in enumerate(idle):
            assert timeline.busy[worker] + gap == pytest.approx(timeline.makespan)
            assert timeline.bubbles[worker] == pytest.approx(gap / timeline.makespan)
        assert timeline.bubble_fraction == pytest.approx(sum(idle) / len(idle) / timeline.makespan)
        assert timeline.ideal == pytest.approx(plan.num_step_microbatches * (costs.forward + costs.backward))


def makespan_with_latency(schedule: str, p: int, m: int, costs: Costs) -> float:
    """Return the published form; for 1f1b it holds for whole multiples of ``p``."""
    both, hops = costs.forward + costs.backward, 2 * (p - 1)
    match schedule:
        case "naive":
            return m * (p * both + hops * costs.comm)
        case "gpipe":
            return (m + p - 1) * both + hops * costs.comm
        case _:
            return (m + p - 1) * both + costs.comm * (hops * m / p + 2 * (p - 2))


@pytest.mark.parametrize("comm", [0.125, 5])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
def test_simulate_with_latency_gives_the_closed_forms(schedule: str, comm: float) -> None:
    for p in range(2, 9):
        for m in range(p, 33, p) if schedule == "1f1b" else (1, 2, 5, 12, 32):
            plan = make_plan(schedule, num_workers=p, num_microbatches=m)
            for costs in (Costs(comm=comm), Costs(forward=3, weight_gradient=0.5, comm=comm)):
                makespan = simulate(plan, costs).makespan
                assert makespan == pytest.approx(makespan_with_latency(schedule, p, m, costs)), (p, m)


@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b", "zbh1"])
def test_simulate_of_slices_lasts_as_long_as_one_after_the_other(schedule: str) -> None:
    one = simulate(make_plan(schedule, num_workers=4, num_microbatches=8))
    three = simulate(make_plan(schedule, num_workers=4, num_microbatches=8, num_slices=3))
    assert three.ideal == 3 * one.ideal
    assert three.makespan == 3 * one.makespan  # stage 0 ends a slice last and starts the next one first
    assert three.peak_in_flight == one.peak_in_flight


def test_simulate_of_a_forward_plan_holds_one_activation_and_drains_once() -> None:
    timeline = simulate(make_forward_plan(looping(4), num_microbatches=8))
    assert timeline.makespan == 8 + 3
    assert timeline.ideal == 8
    assert timeline.peak_in_flight == (1, 1, 1, 1)


def test_simulate_of_a_forward_plan_in_a_v_waits_on_the_way_up_only() -> None:
    timeline = simulate(make_forward_plan(v_shaped(2), num_microbatches=4))
    # Halves of a stage: worker 1 starts at 0.5, is busy for 4, and its last result takes worker 0 one half more.
    assert timeline.makespan == 0.5 + 4 + 0.5
    assert timeline.peak_in_flight == (0.5, 0.5)


def test_simulate_with_the_longest_transfers_keeps_the_length_of_every_action() -> None:
    timeline = simulate(make_plan("naive", num_workers=8, num_microbatches=32), Costs(comm=1e6))
    assert timeline.makespan == 32 * (8 * 3 + 2 * 7 * 1e6)
    lengths = {(span.action.op, span.end - span.start) for spans in timeline.workers for span in spans}
    assert lengths == {(Op.FORWARD, 1), (Op.BACKWARD, 2)}


def test_execute_of_lists_that_wait_for_each_other_names_where() -> None:
    placement = looping(2)
    forward, backward = Action(0, Op.FORWARD, 0), Action(0, Op.BACKWARD, 0)
    workers = [lower([forward, backward], placement=placement), ()]
    with pytest.raises(DeadlockError) as error:
        execute(workers, placement=placement, duration=lambda _: 1, latency=lambda *_: 0)
    assert error.value.waiting == {0: 3}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"forward": 0}, "cost forward is 0, need a finite number above 0"),
        ({"input_gradient": -1}, "cost input_gradient is -1, need a finite number above 0"),
        ({"weight_gradient": float("nan")}, "cost weight_gradient is nan, need a finite number above 0"),
        ({"comm": -0.5}, "cost comm is -0.5, need a finite number, at least 0"),
        ({"comm": float("inf")}, "cost comm is inf, need a finite number, at least 0"),
        ({"comm": 1e17}, "cost comm is 1e+17, need at most 1000000, a million times the shortest other"),
        (
            {"comm": 1.5, "forward": 1e-6},
            "cost comm is 1.5, need at most 1, a million times the shortest other",
        ),
    ],
)
def test_costs_without_sense_are_refused_by_name(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(PlanError) as error:
        Costs(**wrong)
    assert str(error.value) == message
