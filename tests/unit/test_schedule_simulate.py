"""Predicted timelines against published numbers and closed forms."""

import functools
import itertools
from collections.abc import Iterator

import pytest

from coordinator.schedule.actions import Action, Op, PlanError
from coordinator.schedule.execute import DeadlockError, execute
from coordinator.schedule.lowering import STEP_END, lower
from coordinator.schedule.placement import looping
from coordinator.schedule.plan import Plan, Schedule, make_forward_plan, make_plan
from coordinator.schedule.simulate import Costs, Timeline, simulate

COSTS = [Costs(), Costs(forward=3), Costs(forward=0.75, weight_gradient=0.625)]

made = functools.cache(make_plan)


def spans(timeline: Timeline) -> list[float]:
    """Return for each worker the time from its first start to its last end."""
    return [worker[-1].end - worker[0].start for worker in timeline.workers]


def sizes() -> Iterator[tuple[int, int]]:
    return ((p, m) for p in range(1, 9) for m in range(1, 25))


@pytest.mark.parametrize(
    ("schedule", "makespan", "bubble", "devices", "alive"),
    [  # 4 stages, 8 microbatches, forward 1, backward 2
        ("naive", 96, 0.75, [96, 93, 90, 87], (1, 1, 1, 1)),
        ("gpipe", 33, 3 / 11, [33, 30, 27, 24], (8, 8, 8, 8)),
        ("1f1b", 33, 3 / 11, [33, 30, 27, 24], (4, 3, 2, 1)),
    ],
)
def test_simulate_of_four_stages_gives_the_reference_numbers(
    schedule: str, makespan: float, bubble: float, devices: list[float], alive: tuple[int, ...]
) -> None:
    timeline = simulate(made(schedule, num_workers=4, num_microbatches=8))
    assert timeline.makespan == makespan
    assert timeline.ideal == 24
    assert timeline.busy == (24, 24, 24, 24)
    assert timeline.bubble_fraction == pytest.approx(bubble, abs=1e-12)
    assert spans(timeline) == devices
    assert timeline.peak_in_flight == alive


@pytest.mark.parametrize("costs", COSTS, ids=str)
@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_without_latency_gives_the_closed_forms(schedule: Schedule, costs: Costs) -> None:
    both = costs.forward + costs.backward
    for p, m in sizes():
        timeline = simulate(made(schedule, num_workers=p, num_microbatches=m), costs)
        if schedule is Schedule.NAIVE:
            makespan, bubble, alive = m * p * both, (p - 1) / p, [1] * p
        else:
            makespan, bubble = (m + p - 1) * both, (p - 1) / (m + p - 1)
            alive = [m] * p if schedule is Schedule.GPIPE else [min(p - s, m) for s in range(p)]
        assert timeline.makespan == pytest.approx(makespan), (p, m)
        assert timeline.bubble_fraction == pytest.approx(bubble, abs=1e-9), (p, m)
        assert timeline.ideal == pytest.approx(m * both), (p, m)
        assert list(timeline.peak_in_flight) == alive, (p, m)


@pytest.mark.parametrize("comm", [0.125, 5])
@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_with_latency_gives_the_closed_forms(schedule: Schedule, comm: float) -> None:
    for p, m in sizes():
        if p == 1 or (schedule is Schedule.ONE_F_ONE_B and m % p):
            continue  # the form for 1f1b is for whole multiples of p
        for costs in (Costs(comm=comm), Costs(forward=3, comm=comm)):
            both = costs.forward + costs.backward
            expected = {
                Schedule.NAIVE: m * (p * both + 2 * (p - 1) * comm),
                Schedule.GPIPE: (m + p - 1) * both + 2 * (p - 1) * comm,
                Schedule.ONE_F_ONE_B: (m + p - 1) * both + comm * (2 * (p - 1) * m / p + 2 * (p - 2)),
            }[schedule]
            timeline = simulate(made(schedule, num_workers=p, num_microbatches=m), costs)
            assert timeline.makespan == pytest.approx(expected), (p, m)


@pytest.mark.parametrize("schedule", Schedule)
def test_simulate_of_slices_lasts_as_long_as_one_after_the_other(schedule: Schedule) -> None:
    one = simulate(made(schedule, num_workers=4, num_microbatches=8))
    three = simulate(make_plan(schedule, num_workers=4, num_microbatches=8, num_slices=3))
    assert three.ideal == 3 * one.ideal
    assert three.makespan == 3 * one.makespan  # stage 0 ends a slice last and starts the next one first
    assert three.peak_in_flight == one.peak_in_flight


def test_simulate_of_a_forward_plan_holds_one_activation_and_drains_once() -> None:
    timeline = simulate(make_forward_plan(num_workers=4, num_microbatches=8))
    assert timeline.makespan == 8 + 3
    assert timeline.ideal == 8
    assert timeline.peak_in_flight == (1, 1, 1, 1)


def test_simulate_never_starts_an_action_before_its_input_is_there() -> None:
    costs = Costs(comm=0.25)
    timeline = simulate(made("1f1b", num_workers=4, num_microbatches=7), costs)
    ends = {span.action: span.end for worker in timeline.workers for span in worker}
    for worker in timeline.workers:
        for span in worker:
            step = -1 if span.action.op is Op.FORWARD else 1
            source = Action(span.action.stage + step, span.action.op, span.action.microbatch)
            assert span.start >= ends.get(source, -costs.comm) + costs.comm
        assert all(before.end <= after.start for before, after in itertools.pairwise(worker))


def interleaved_order(worker: int, *, p: int, v: int, m: int) -> list[Action]:
    """Return interleaved 1F1B by its published rule: groups of ``p`` microbatches, ``m`` a multiple of ``p``."""
    groups = [range(start, start + p) for start in range(0, m, p)]
    forwards = [Action(c * p + worker, Op.FORWARD, i) for group in groups for c in range(v) for i in group]
    backwards = [Action(c * p + worker, Op.BACKWARD, i) for group in groups for c in reversed(range(v)) for i in group]
    warmup = min(m * v, 2 * (p - 1 - worker) + (v - 1) * p)
    pairs = [action for pair in zip(forwards[warmup:], backwards, strict=False) for action in pair]
    return forwards[:warmup] + pairs + backwards[m * v - warmup :]


@pytest.mark.parametrize(
    ("v", "makespan", "bubble", "alive"),
    [(2, 28.5, 0.1579, (5.5, 4.5, 3.5, 2.5)), (4, 26.25, 0.0857, (4.75, 4.25, 3.75, 3.25))],
)
def test_simulate_of_chunks_gives_the_reference_numbers_of_interleaving(
    v: int, makespan: float, bubble: float, alive: tuple[float, ...]
) -> None:
    placement = looping(4, v)
    orders = [interleaved_order(worker, p=4, v=v, m=8) for worker in range(4)]
    plan = Plan(
        schedule="by hand",
        placement=placement,
        num_microbatches=8,
        num_slices=1,
        workers=tuple((*lower(order, placement=placement), *STEP_END) for order in orders),
        in_flight_bounds=tuple(min(8 * v, 2 * (3 - worker) + (v - 1) * 4 + 1) for worker in range(4)),
    )
    timeline = simulate(plan)
    assert timeline.makespan == makespan
    assert timeline.ideal == 24
    assert timeline.bubble_fraction == pytest.approx(bubble, abs=5e-5)
    assert timeline.peak_in_flight == alive


def test_execute_of_lists_that_wait_for_each_other_names_where() -> None:
    placement = looping(2)
    forward, backward = Action(0, Op.FORWARD, 0), Action(0, Op.BACKWARD, 0)
    workers = [lower([forward, backward], placement=placement), ()]
    with pytest.raises(DeadlockError) as error:
        execute(workers, placement=placement, durations={Op.FORWARD: 1, Op.BACKWARD: 1}, latency=0)
    assert error.value.waiting == {0: 3}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"forward": 0}, "cost forward is 0, need a finite number above 0"),
        ({"input_gradient": -1}, "cost input_gradient is -1, need a finite number above 0"),
        ({"weight_gradient": float("nan")}, "cost weight_gradient is nan, need a finite number above 0"),
        ({"comm": -0.5}, "cost comm is -0.5, need a finite number, at least 0"),
        ({"comm": float("inf")}, "cost comm is inf, need a finite number, at least 0"),
    ],
)
def test_costs_without_sense_are_refused_by_name(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(PlanError) as error:
        Costs(**wrong)
    assert str(error.value) == message
