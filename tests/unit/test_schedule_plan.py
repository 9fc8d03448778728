"""Whole plans as they are made."""

import itertools
import time
from dataclasses import replace

import pytest

from coordinator.schedule.actions import PlanError, parse
from coordinator.schedule.in_flight import peak_in_flight
from coordinator.schedule.lowering import STEP_END
from coordinator.schedule.placement import Placement, looping, v_shaped
from coordinator.schedule.plan import Plan, Schedule, make_forward_plan, make_plan, num_commands
from coordinator.schedule.rules import BrokenRuleError, Rule


def written(workers: tuple[tuple[object, ...], ...]) -> list[str]:
    return [" ".join(map(str, worker)) for worker in workers]


def test_make_plan_of_two_workers_writes_out_every_instruction() -> None:
    plan = make_plan("1f1b", num_workers=2, num_microbatches=2)
    assert written(plan.workers) == [
        "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0RECV_B1 0B0 0B1 REDUCE STEP",
        "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1 REDUCE STEP",
    ]


def test_make_plan_with_slices_repeats_the_order_and_steps_once() -> None:
    plan = make_plan("1f1b", num_workers=2, num_microbatches=2, num_slices=2)
    assert plan.num_step_microbatches == 4
    assert written(plan.orders) == ["0F0 0F1 0B0 0B1 0F2 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"]
    assert [str(i) for worker in plan.workers for i in worker if str(i) in ("REDUCE", "STEP")] == ["REDUCE", "STEP"] * 2


SCHEDULES: list[tuple[str, int]] = [
    ("naive", 1),
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved", 2),
    ("looped_bfs", 2),
    ("zbh1", 1),
    ("zbh2", 1),
    ("zbv", 2),
    ("dualpipev", 2),
]
"""Every schedule, with chunks that it runs."""


def test_schedules_are_those_of_these_tests() -> None:
    assert [schedule for schedule, _ in SCHEDULES] == list(Schedule)


@pytest.mark.parametrize(
    ("schedule", "num_chunks", "peaks"),
    [
        ("naive", 1, [1, 1, 1, 1]),
        ("gpipe", 1, [8, 8, 8, 8]),
        ("1f1b", 1, [4, 3, 2, 1]),
        ("interleaved", 2, [11, 9, 7, 5]),
        ("looped_bfs", 2, [16, 16, 16, 16]),
        ("zbh1", 1, [4, 4, 4, 4]),
        ("zbh2", 1, [7, 7, 7, 7]),
        ("zbv", 2, [8, 8, 8, 8]),
        ("dualpipev", 2, [9, 9, 9, 9]),
    ],
)
def test_make_plan_with_slices_holds_no_more_than_with_one(schedule: str, num_chunks: int, peaks: list[int]) -> None:
    plan = make_plan(schedule, num_workers=4, num_chunks=num_chunks, num_microbatches=8, num_slices=3)
    assert [peak_in_flight(worker)[0] for worker in plan.workers] == peaks
    assert list(plan.in_flight_bounds or ()) == peaks


@pytest.mark.parametrize(("schedule", "num_chunks"), SCHEDULES)
def test_make_plan_on_one_worker_needs_no_transfer_and_no_halves(schedule: str, num_chunks: int) -> None:
    plan = make_plan(schedule, num_workers=1, num_chunks=num_chunks, num_microbatches=3)
    assert num_commands(plan) == num_chunks * 3 * 2 + 2


@pytest.mark.parametrize(
    ("schedule", "num_chunks", "num_borders", "num_weights"),
    [  # borders between workers; W that stand apart from their I
        ("naive", 1, 3, 0),
        ("gpipe", 1, 3, 0),
        ("1f1b", 1, 3, 0),
        ("interleaved", 2, 7, 0),
        ("looped_bfs", 2, 7, 0),
        ("zbh1", 1, 3, 3 * 8),  # all but stage 0's
        ("zbh2", 1, 3, 3 * 8),
        ("zbv", 2, 6, 6 * 8 + 3),  # none of stage 0's, the last 3 of stage 4's: 3 lies on its worker too
        ("dualpipev", 2, 6, 3 + 2 + 1 + 3 * 4),  # those of the third phase, and the last 4 of all workers but 0
    ],
)
def test_num_commands_of_four_workers_counts_transfers_halves_and_barriers(
    schedule: str, num_chunks: int, num_borders: int, num_weights: int
) -> None:
    # F and B of 8 microbatches, 2 ends of 2 kinds of transfers, REDUCE and STEP
    expected = 4 * num_chunks * 8 * 2 + num_weights + num_borders * 8 * 2 * 2 + 4 * 2
    assert num_commands(make_plan(schedule, num_workers=4, num_chunks=num_chunks, num_microbatches=8)) == expected


def test_make_plan_in_a_v_hands_over_at_the_foot_and_joins_halves_there() -> None:
    plan = make_plan("zbv", num_workers=2, num_chunks=2, num_microbatches=1)
    assert plan.placement == v_shaped(2)
    assert written(plan.workers) == [
        "3RECV_F0 0F0 0SEND_F0 3F0 3I0 3SEND_B0 0RECV_B0 3W0 0B0 REDUCE STEP",
        "1RECV_F0 1F0 2RECV_B0 2F0 2SEND_F0 2B0 1I0 1SEND_B0 1W0 REDUCE STEP",
    ]


@pytest.mark.parametrize(("schedule", "num_chunks"), SCHEDULES)
def test_make_plan_says_nothing_about_its_own_plans(schedule: str, num_chunks: int) -> None:
    plan = make_plan(schedule, num_workers=3, num_chunks=num_chunks, num_microbatches=6)
    assert plan.notices == ()


def test_plan_that_need_not_ascend_says_where_it_does_not() -> None:
    placement = looping(1)
    order = [parse(text) for text in ("0F0", "0F1", "0B1", "0B0")]
    descending = {
        "schedule": "by hand",
        "placement": placement,
        "num_microbatches": 2,
        "num_slices": 1,
        "workers": ((*order, *STEP_END),),
        "in_flight_bounds": None,
    }
    (notice,) = Plan(**descending, ascending=False).notices
    assert "0B0" in notice
    with pytest.raises(BrokenRuleError) as error:
        Plan(**descending)
    assert error.value.rule is Rule.ASCENDING


def test_plan_without_in_flight_bounds_may_hold_what_it_likes() -> None:
    plan = make_plan("gpipe", num_workers=2, num_microbatches=4)
    assert replace(plan, in_flight_bounds=None).workers == plan.workers
    with pytest.raises(BrokenRuleError) as error:
        replace(plan, in_flight_bounds=(4, 3))
    assert error.value.rule is Rule.IN_FLIGHT


def test_make_forward_plan_runs_forwards_and_transfers_only() -> None:
    assert written(make_forward_plan(looping(3), num_microbatches=2).workers) == [
        "0F0 0SEND_F0 0F1 0SEND_F1",
        "1RECV_F0 1RECV_F1 1F0 1SEND_F0 1F1 1SEND_F1",
        "2RECV_F0 2RECV_F1 2F0 2F1",
    ]


def test_make_forward_plan_in_a_v_hands_over_at_the_foot() -> None:
    assert written(make_forward_plan(v_shaped(2), num_microbatches=2).workers) == [
        "0F0 0SEND_F0 3RECV_F0 0F1 0SEND_F1 3RECV_F1 3F0 3F1",
        "1RECV_F0 1RECV_F1 1F0 1F1 2F0 2SEND_F0 2F1 2SEND_F1",
    ]


def test_make_forward_plan_takes_every_placement() -> None:
    for worker_by_stage in set(itertools.permutations((0, 0, 1, 1, 2, 2))):
        plan = make_forward_plan(Placement(worker_by_stage), num_microbatches=2)
        borders = sum(here != there for here, there in itertools.pairwise(worker_by_stage))
        assert num_commands(plan) == 6 * 2 + borders * 2 * 2, worker_by_stage


def test_make_plan_of_an_unbuilt_schedule_lists_those_that_are_built() -> None:
    with pytest.raises(PlanError, match="schedule 'hanayo' is not built; choose one of: naive, gpipe, 1f1b, inter"):
        make_plan("hanayo", num_workers=2, num_microbatches=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_workers": 0}, "num_workers is 0, need at least 1"),
        ({"num_microbatches": 0}, "num_microbatches is 0, need at least 1"),
        ({"num_slices": 0}, "num_slices is 0, need at least 1"),
        ({"num_chunks": 0}, "num_chunks is 0, need at least 1"),
        ({"num_chunks": 2}, "num_chunks is 2, but 1f1b runs 1 chunk per worker; use 1, or interleaved"),
    ],
)
def test_make_plan_with_a_bad_count_is_refused_by_name(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(PlanError) as error:
        make_plan("1f1b", **{"num_workers": 2, "num_microbatches": 2} | wrong)
    assert str(error.value) == message


def test_make_plan_of_eight_workers_and_64_microbatches_takes_under_a_second() -> None:
    started = time.process_time()
    make_plan("1f1b", num_workers=8, num_microbatches=64)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("num_microbatches", [2, 4])
@pytest.mark.parametrize(("schedule", "num_chunks"), SCHEDULES)
def test_plan_of_one_worker_moves_nothing(schedule: str, num_chunks: int, num_microbatches: int) -> None:
    plan = make_plan(schedule, num_workers=1, num_chunks=num_chunks, num_microbatches=num_microbatches)
    ((*compute, reduce, step),) = plan.workers
    stages = range(num_chunks)
    assert sorted(map(str, compute)) == sorted(
        f"{stage}{op}{m}" for stage in stages for op in "FB" for m in range(num_microbatches)
    )
    assert [str(reduce), str(step)] == ["REDUCE", "STEP"]
