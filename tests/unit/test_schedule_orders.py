"""Compute orders of single stages, and where stages lie."""

import pytest

from coordinator.schedule.actions import Action, PlanError
from coordinator.schedule.gpipe import order_gpipe
from coordinator.schedule.naive import order_naive
from coordinator.schedule.one_f_one_b import in_flight_1f1b, order_1f1b
from coordinator.schedule.placement import looping


def written(order: tuple[Action, ...]) -> str:
    return " ".join(map(str, order))


def test_naive_order_of_three_microbatches_is_one_after_the_other() -> None:
    assert written(order_naive(1, num_microbatches=3)) == "1F0 1B0 1F1 1B1 1F2 1B2"


def test_gpipe_order_of_three_microbatches_is_forwards_then_backwards_ascending() -> None:
    assert written(order_gpipe(2, num_microbatches=3)) == "2F0 2F1 2F2 2B0 2B1 2B2"


@pytest.mark.parametrize(
    ("stage", "order"),
    [  # read off the figure for 3 stages, 4 microbatches
        (0, "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3"),
        (1, "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3"),
        (2, "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"),
    ],
)
def test_1f1b_order_of_three_stages_is_the_published_figure(stage: int, order: str) -> None:
    assert written(order_1f1b(stage, num_stages=3, num_microbatches=4)) == order


@pytest.mark.parametrize(("stage", "order"), [(0, "0F0 0F1 0B0 0B1"), (3, "3F0 3B0 3F1 3B1")])
def test_1f1b_order_with_fewer_microbatches_than_stages_is_whole(stage: int, order: str) -> None:
    assert written(order_1f1b(stage, num_stages=4, num_microbatches=2)) == order


def test_1f1b_in_flight_is_the_distance_to_the_end_or_all_microbatches() -> None:
    assert [in_flight_1f1b(s, num_stages=4, num_microbatches=8) for s in range(4)] == [4, 3, 2, 1]
    assert [in_flight_1f1b(s, num_stages=4, num_microbatches=2) for s in range(4)] == [2, 2, 2, 1]


@pytest.mark.parametrize("stage", [-1, 3])
def test_1f1b_order_of_a_stage_that_is_not_there_is_refused(stage: int) -> None:
    with pytest.raises(PlanError, match=rf"stage {stage} is outside \[0, 3\)"):
        order_1f1b(stage, num_stages=3, num_microbatches=4)


def test_placement_with_two_chunks_loops_over_the_workers() -> None:
    placement = looping(3, 2)
    assert placement.num_stages == 6
    assert [placement.worker_of(stage) for stage in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [placement.stages_of(worker) for worker in range(3)] == [(0, 3), (1, 4), (2, 5)]


def test_placement_asked_for_what_is_not_there_is_refused() -> None:
    placement = looping(2)
    with pytest.raises(PlanError, match=r"stage 2 is outside \[0, 2\)"):
        placement.worker_of(2)
    with pytest.raises(PlanError, match=r"worker -1 is outside \[0, 2\)"):
        placement.stages_of(-1)


@pytest.mark.parametrize(
    ("num_workers", "num_chunks", "message"), [(0, 1, "num_workers is 0"), (1, -2, "num_chunks is -2")]
)
def test_placement_of_nothing_is_refused(num_workers: int, num_chunks: int, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        looping(num_workers, num_chunks)
