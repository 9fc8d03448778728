"""Predicted timelines with latency, with slices and of evaluation; without, see the tables."""

import functools
import itertools
from collections.abc import Iterator

import pytest

from coordinator.schedule.actions import Action, Op, PlanError
from coordinator.schedule.execute import DeadlockError, execute
from coordinator.schedule.lowering import lower
from coordinator.schedule.placement import looping
from coordinator.schedule.plan import Schedule, make_forward_plan, make_plan
from coordinator.schedule.simulate import Costs, simulate

PLAIN = [Schedule.NAIVE, Schedule.GPIPE, Schedule.ONE_F_ONE_B]
"""Schedules of one chunk and whole backwards."""

made = functools.cache(make_plan)


def sizes() -> Iterator[tuple[int, int]]:
    return ((p, m) for p in range(1, 9) for m in range(1, 25))


@pytest.mark.parametrize("comm", [0.125, 5])
@pytest.mark.parametrize("schedule", PLAIN)
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


@pytest.mark.parametrize("schedule", PLAIN)
def test_simulate_of_slices_lasts_as_long_as_one_after_the_other(schedule: Schedule) -> None:
    one = simulate(made(schedule, num_workers=4, num_microbatches=8))
    three = simulate(make_plan(schedule, num_workers=4, num_microbatches=8, num_slices=3))
    assert three.ideal == 3 * one.ideal
    assert three.makespan == 3 * one.makespan  # stage 0 ends a slice last and starts the next one first
    assert three.peak_in_flight == one.peak_in_flight


def test_simulate_of_a_forward_plan_holds_one_activation_and_drains_once() -> None:
    timeline = simulate(make_forward_plan(looping(4), num_microbatches=8))
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
