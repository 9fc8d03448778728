"""Whole plans as they are made."""

import time

import pytest

from coordinator.schedule.actions import PlanError
from coordinator.schedule.in_flight import peak_in_flight
from coordinator.schedule.plan import Schedule, make_forward_plan, make_plan, num_commands


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


@pytest.mark.parametrize(
    ("schedule", "peaks"), [("naive", [1, 1, 1, 1]), ("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])]
)
def test_make_plan_with_slices_holds_no_more_than_with_one(schedule: str, peaks: list[int]) -> None:
    plan = make_plan(schedule, num_workers=4, num_microbatches=8, num_slices=3)
    assert [peak_in_flight(worker)[0] for worker in plan.workers] == peaks


@pytest.mark.parametrize("schedule", Schedule)
def test_make_plan_on_one_worker_needs_no_transfer(schedule: Schedule) -> None:
    plan = make_plan(schedule, num_workers=1, num_microbatches=3)
    assert num_commands(plan) == 3 * 2 + 2


@pytest.mark.parametrize("schedule", Schedule)
def test_num_commands_of_four_workers_counts_transfers_and_barriers(schedule: Schedule) -> None:
    # 4 stages x 8 F and B, 3 borders x 8 x 2 kinds x 2 ends, REDUCE and STEP on 4 workers
    assert num_commands(make_plan(schedule, num_workers=4, num_microbatches=8)) == 64 + 96 + 8


def test_make_forward_plan_runs_forwards_and_transfers_only() -> None:
    assert written(make_forward_plan(num_workers=3, num_microbatches=2).workers) == [
        "0F0 0SEND_F0 0F1 0SEND_F1",
        "1RECV_F0 1RECV_F1 1F0 1SEND_F0 1F1 1SEND_F1",
        "2RECV_F0 2RECV_F1 2F0 2F1",
    ]


def test_make_plan_of_an_unbuilt_schedule_lists_those_that_are_built() -> None:
    with pytest.raises(PlanError, match="schedule 'zbv' is not built; choose one of: naive, gpipe, 1f1b"):
        make_plan("zbv", num_workers=2, num_microbatches=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_workers": 0}, "num_workers is 0, need at least 1"),
        ({"num_microbatches": 0}, "num_microbatches is 0, need at least 1"),
        ({"num_slices": 0}, "num_slices is 0, need at least 1"),
        ({"num_chunks": 0}, "num_chunks is 0, need at least 1"),
        ({"num_chunks": 2}, "num_chunks is 2, but schedule 1f1b runs one chunk per worker; use 1"),
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


@pytest.mark.parametrize("num_microbatches", [1, 4])
@pytest.mark.parametrize("schedule", list(Schedule))
def test_h65_plan_of_one_stage_moves_nothing(schedule: Schedule, num_microbatches: int) -> None:
    plan = make_plan(schedule, num_workers=1, num_microbatches=num_microbatches)
    ((*compute, reduce, step),) = plan.workers
    assert sorted(map(str, compute)) == sorted(f"0{op}{m}" for op in "FB" for m in range(num_microbatches))
    assert [str(reduce), str(step)] == ["REDUCE", "STEP"]
