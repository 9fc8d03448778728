"""What recompute adds to a step's time and takes from its memory, against closed forms and against the timeline."""

import functools
import itertools

import pytest

from coordinator.schedule.limits import SizeError
from coordinator.schedule.placement import looping
from coordinator.schedule.plan import Plan, Schedule, make_forward_plan, make_plan
from coordinator.schedule.recompute import Recompute
from coordinator.schedule.simulate import Costs, Timeline, simulate

UNEQUAL = Costs(forward=0.75, input_gradient=1.25, weight_gradient=0.5, comm=0.375)


def full(num_stages: int, *, kept_microbatch: int | None = None) -> Recompute:
    return Recompute(parts=(1,) * num_stages, kept_microbatch=kept_microbatch)


@functools.cache
def plans(schedule: Schedule) -> list[Plan]:
    """Return plans of a schedule, of all sizes of these that it runs."""
    fitting = []
    for p, v, m in itertools.product((1, 2, 4), (1, 2, 3), (1, 4, 8)):
        try:
            fitting.append(make_plan(schedule, num_workers=p, num_chunks=v, num_microbatches=m, num_slices=2))
        except SizeError:
            continue
    assert fitting
    return fitting


def uneven(plan: Plan) -> Recompute:
    """Return that the stages of ``plan`` run 0, 1, 2, 3, 0, ... thirds again, and nothing of microbatch 1."""
    parts = tuple(stage % 4 for stage in range(plan.placement.num_stages))
    return Recompute(parts=parts, whole=3, kept_microbatch=1)


def again(recompute: Recompute, stage: int, microbatch: int) -> float:
    return 0.0 if microbatch == recompute.kept_microbatch else recompute.parts[stage] / recompute.whole


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(4, 8), (2, 5), (1, 3), (4, 4)])
def test_simulate_of_full_recompute_is_longer_by_a_forward_and_holds_one_activation(
    schedule: str, p: int, m: int
) -> None:
    timeline = simulate(make_plan(schedule, num_workers=p, num_microbatches=m), recompute=full(p))
    assert timeline.makespan == (m + p - 1) * (1 + 3)
    assert timeline.ideal == m * (1 + 3)
    assert timeline.bubble_fraction == pytest.approx((p - 1) / (m + p - 1))
    assert timeline.peak_activations == (1,) * p


def test_simulate_of_a_share_of_the_layers_costs_and_frees_that_share() -> None:
    """Four of six layers run again: a step's 11 slots take 3 2/3 each; all but the one in its backward hold 1/3."""
    recompute = Recompute.of_layers([4] * 4, layers=[6] * 4)
    gpipe = simulate(make_plan("gpipe", num_workers=4, num_microbatches=8), recompute=recompute)
    one_f_one_b = simulate(make_plan("1f1b", num_workers=4, num_microbatches=8), recompute=recompute)
    assert gpipe.makespan == one_f_one_b.makespan == pytest.approx(11 * (3 + 2 / 3), rel=1e-15)
    assert gpipe.bubble_fraction == pytest.approx(3 / 11)
    assert gpipe.peak_activations == pytest.approx([7 / 3 + 1] * 4, rel=1e-15)
    assert one_f_one_b.peak_activations == pytest.approx([3 / 3 + 1, 2 / 3 + 1, 1 / 3 + 1, 1], rel=1e-15)
    assert one_f_one_b.peak_in_flight == (4, 3, 2, 1)


def test_simulate_of_stages_that_differ_adds_up_each_ones_own() -> None:
    """naive runs one action at a time: a step is the sum of all."""
    recompute = Recompute.of_layers([1, 0, 2, 9], layers=[4, 3, 2, 1])
    timeline = simulate(make_plan("naive", num_workers=4, num_microbatches=5), recompute=recompute)
    assert timeline.busy == (5 * 3.25, 5 * 3, 5 * 4, 5 * 4)
    assert timeline.makespan == sum(timeline.busy)
    assert timeline.ideal == 5 * 4
    assert timeline.peak_activations == (1, 1, 1, 1)


def test_simulate_of_all_but_the_last_microbatch_spares_one_forward_and_holds_one_more() -> None:
    """Backwards ascend: the last microbatch is held, whole, while those before it are computed again."""
    recompute = full(4, kept_microbatch=7)
    naive = simulate(make_plan("naive", num_workers=4, num_microbatches=8), recompute=recompute)
    gpipe = simulate(make_plan("gpipe", num_workers=4, num_microbatches=8), recompute=recompute)
    one_f_one_b = simulate(make_plan("1f1b", num_workers=4, num_microbatches=8), recompute=recompute)
    assert naive.makespan == 4 * (7 * 4 + 3)
    assert naive.peak_activations == (1, 1, 1, 1)
    # Forwards pass in 8 + 3; the first backward passes three stages, 3 each; then stage 0 has 7 of 3 and one of 2.
    assert gpipe.makespan == (8 + 3) + 3 * 3 + 7 * 3 + 2
    assert gpipe.peak_activations == (2, 2, 2, 2)
    assert gpipe.ideal == 7 * 4 + 3
    assert one_f_one_b.peak_activations == (2, 2, 2, 1)


def test_simulate_of_a_split_backward_computes_again_before_its_first_half() -> None:
    plan = make_plan("zbh2", num_workers=2, num_microbatches=4)
    timeline = simulate(plan, recompute=full(2))
    lengths = {
        (span.action.stage, span.action.op.value): span.end - span.start for lane in timeline.workers for span in lane
    }
    assert lengths[1, "I"] == 2
    assert lengths[1, "W"] == 1
    assert {length for (_, op), length in lengths.items() if op == "F"} == {1}


def test_simulate_of_a_forward_plan_has_no_backward_to_compute_again_for() -> None:
    plan = make_forward_plan(looping(4), num_microbatches=8)
    assert simulate(plan, recompute=full(4)).makespan == simulate(plan).makespan == 11


@pytest.mark.parametrize("costs", [Costs(), UNEQUAL], ids=["unit costs", "unequal costs"])
@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_without_anything_to_compute_again_is_the_same_timeline(schedule: Schedule, costs: Costs) -> None:
    for plan in plans(schedule):
        plain = simulate(plan, costs)
        assert plain.peak_activations == plain.peak_in_flight
        for whole in (1, 4):
            assert simulate(plan, costs, Recompute(parts=(0,) * plan.placement.num_stages, whole=whole)) == plain


@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_gives_every_action_its_length_and_starts_it_once_its_input_is_there(schedule: Schedule) -> None:
    for plan in plans(schedule):
        recompute = uneven(plan)
        timeline = simulate(plan, UNEQUAL, recompute)
        worker_of = plan.placement.worker_by_stage
        ends = {
            (span.action.stage, span.action.op.replace("I", "B"), span.action.microbatch): span.end
            for lane in timeline.workers
            for span in lane
        }
        for worker, spans in enumerate(timeline.workers):
            free = 0.0
            for span in spans:
                stage, op, microbatch = span.action
                cost = {"F": 0.75, "I": 1.25, "W": 0.5, "B": 1.75}[op]
                cost += 0.75 * again(recompute, stage, microbatch) if op in "BI" else 0
                source = {"F": stage - 1, "I": stage + 1, "B": stage + 1, "W": stage}[op]
                made = ends.get((source, "F" if op == "F" else "B", microbatch), 0.0)
                travels = 0 <= source < len(worker_of) and worker_of[source] != worker
                assert span.start == pytest.approx(max(free, made + 0.375 * travels)), (plan.schedule, span)
                assert span.end - span.start == pytest.approx(cost / plan.placement.num_chunks)
                free = span.end


def held_at_most(timeline: Timeline, worker: int, recompute: Recompute, num_chunks: int) -> float:
    """Return the most that a worker holds at the start of any of its actions, by the times of its actions."""
    spans = timeline.workers[worker]
    backwards = [span for span in spans if span.action.op != "F"]
    lives = []
    for start, _, (stage, op, microbatch) in spans:
        if op == "F":
            own = [span for span in backwards if (span.action.stage, span.action.microbatch) == (stage, microbatch)]
            lives.append((start, own[0].start, own[-1].end, 1 - again(recompute, stage, microbatch)))
    held = [
        sum(kept if now < backward else 1.0 for start, backward, end, kept in lives if start <= now < end)
        for now, _, _ in spans
    ]
    return max(held) / num_chunks


@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_holds_what_is_kept_until_the_backward_and_all_of_it_from_then_on(schedule: Schedule) -> None:
    for plan in plans(schedule):
        for recompute in (uneven(plan), full(plan.placement.num_stages)):
            timeline = simulate(plan, recompute=recompute)
            for worker, peak in enumerate(timeline.peak_activations):
                by_time = held_at_most(timeline, worker, recompute, plan.placement.num_chunks)
                assert peak == pytest.approx(by_time), (plan.schedule, worker)
                assert peak <= timeline.peak_in_flight[worker]
