"""Compute orders of single workers, against orders written out by hand from the published rules."""

import pytest

from coordinator.schedule.actions import Action, PlanError
from coordinator.schedule.dualpipev import order_dualpipev
from coordinator.schedule.gpipe import order_gpipe
from coordinator.schedule.interleaved import order_interleaved
from coordinator.schedule.looped_bfs import order_looped_bfs
from coordinator.schedule.naive import order_naive
from coordinator.schedule.one_f_one_b import EAGER, in_flight_1f1b, order_1f1b
from coordinator.schedule.placement import looping, v_shaped
from coordinator.schedule.zbh1 import order_zbh1
from coordinator.schedule.zbh2 import order_zbh2
from coordinator.schedule.zbv import order_zbv


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


@pytest.mark.parametrize(
    ("warmup", "stage", "order"),
    [
        (EAGER, 0, "0F0 0F1 0F2 0F3 0F4 0B0 0F5 0B1 0B2 0B3 0B4 0B5"),
        (EAGER, 1, "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1B4 1B5"),
        (EAGER, 2, "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4 2F5 2B5"),
        ([3, 3, 0], 1, "1F0 1F1 1F2 1F3 1B0 1F4 1B1 1F5 1B2 1B3 1B4 1B5"),
        ([9, 9, 9], 2, "2F0 2F1 2F2 2F3 2F4 2F5 2B0 2B1 2B2 2B3 2B4 2B5"),
    ],
)
def test_1f1b_order_with_a_warmup_runs_so_many_forwards_ahead(warmup: str | list[int], stage: int, order: str) -> None:
    assert written(order_1f1b(stage, num_stages=3, num_microbatches=6, warmup=warmup)) == order


def test_1f1b_in_flight_is_one_more_than_the_warmup_or_all_microbatches() -> None:
    assert [in_flight_1f1b(s, num_stages=4, num_microbatches=8) for s in range(4)] == [4, 3, 2, 1]
    assert [in_flight_1f1b(s, num_stages=4, num_microbatches=2) for s in range(4)] == [2, 2, 2, 1]
    assert [in_flight_1f1b(s, num_stages=4, num_microbatches=6, warmup=EAGER) for s in range(4)] == [6, 5, 3, 1]
    assert [in_flight_1f1b(s, num_stages=3, num_microbatches=8, warmup=[5, 2, 2]) for s in range(3)] == [6, 3, 3]


@pytest.mark.parametrize("stage", [-1, 3])
def test_1f1b_order_of_a_stage_that_is_not_there_is_refused(stage: int) -> None:
    with pytest.raises(PlanError, match=rf"stage {stage} is outside \[0, 3\)"):
        order_1f1b(stage, num_stages=3, num_microbatches=4)


@pytest.mark.parametrize(
    ("worker", "order"),
    [
        (0, "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"),
        (1, "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"),
    ],
)
def test_interleaved_order_of_two_workers_passes_groups_of_two(worker: int, order: str) -> None:
    size = {"num_workers": 2, "num_chunks": 2, "num_microbatches": 4, "group_size": 2}
    assert written(order_interleaved(worker, **size)) == order


def test_interleaved_order_with_a_smaller_last_group_ends_with_it() -> None:
    order = order_interleaved(1, num_workers=2, num_chunks=2, num_microbatches=5, group_size=3)
    assert written(order) == ("1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4")


def test_looped_bfs_order_of_the_last_worker_is_chunk_by_chunk_and_back() -> None:
    order = order_looped_bfs(1, num_workers=2, num_chunks=2, num_microbatches=2)
    assert written(order) == "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"


@pytest.mark.parametrize(
    ("stage", "order"),
    [
        (0, "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3"),
        (1, "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3"),
        (2, "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3"),
    ],
)
def test_zbh1_order_of_three_stages_delays_weights_by_the_stage(stage: int, order: str) -> None:
    assert written(order_zbh1(stage, num_stages=3, num_microbatches=4)) == order


@pytest.mark.parametrize(("stage", "order"), [(1, "1F0 1F1 1I0 1I1 1W0 1W1"), (3, "3F0 3I0 3F1 3I1 3W0 3W1")])
def test_zbh1_order_with_fewer_microbatches_than_stages_is_whole(stage: int, order: str) -> None:
    assert written(order_zbh1(stage, num_stages=4, num_microbatches=2)) == order


@pytest.mark.parametrize(
    ("stage", "order"),
    [
        (0, "0F0 0F1 0F2 0F3 0F4 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4"),
        (1, "1F0 1F1 1F2 1I0 1F3 1I1 1F4 1I2 1W0 1I3 1W1 1I4 1W2 1W3 1W4"),
        (2, "2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2F4 2I4 2W0 2W1 2W2 2W3 2W4"),
    ],
)
def test_zbh2_order_of_three_stages_doubles_warmup_and_delay(stage: int, order: str) -> None:
    assert written(order_zbh2(stage, num_stages=3, num_microbatches=5)) == order


@pytest.mark.parametrize(
    ("worker", "order"),
    [
        (
            0,
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3",
        ),
        (
            1,
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3",
        ),
    ],
)
def test_zbv_order_of_two_workers_keeps_its_phases(worker: int, order: str) -> None:
    assert written(order_zbv(worker, num_workers=2, num_microbatches=4)) == order


@pytest.mark.parametrize(
    ("num_microbatches", "orders"),
    [  # those of 3 microbatches, which are the fewest that the phases need, without the last ones
        (2, ["0F0 0F1 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 0I1 0W1", "1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 2I1 2W1 1I1 1W1"]),
        (1, ["0F0 3F0 3I0 3W0 0I0 0W0", "1F0 2F0 2I0 2W0 1I0 1W0"]),
    ],
)
def test_zbv_order_with_few_microbatches_is_whole(num_microbatches: int, orders: list[str]) -> None:
    made = [written(order_zbv(w, num_workers=2, num_microbatches=num_microbatches)) for w in range(2)]
    assert made == orders


@pytest.mark.parametrize(
    ("worker", "order"),
    [
        (
            0,
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3",
        ),
        (
            1,
            "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3",
        ),
    ],
)
def test_dualpipev_order_of_two_workers_keeps_its_phases(worker: int, order: str) -> None:
    assert written(order_dualpipev(worker, num_workers=2, num_microbatches=4)) == order


def test_placement_with_two_chunks_loops_over_the_workers() -> None:
    placement = looping(3, 2)
    assert placement.num_stages == 6
    assert [placement.worker_of(stage) for stage in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [placement.stages_of(worker) for worker in range(3)] == [(0, 3), (1, 4), (2, 5)]


def test_placement_in_a_v_turns_at_the_last_worker_and_ends_on_the_first() -> None:
    placement = v_shaped(3)
    assert [placement.worker_of(stage) for stage in range(6)] == [0, 1, 2, 2, 1, 0]
    assert [placement.stages_of(worker) for worker in range(3)] == [(0, 5), (1, 4), (2, 3)]


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
