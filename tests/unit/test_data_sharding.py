"""Which rows belong to which microbatch; what holds for any layout is in test_data_sharding_properties."""

import numpy as np
import pytest

from dataloader_svc.sharding import Sharding, StepRangeError, microbatches_for_size, row_order, split_evenly


def sharding(num_rows: int, batch_size: int, **changes: object) -> Sharding:
    values = {"num_replicas": 1, "num_microbatches": 1, "seed": 7, "drop_last": False, **changes}
    return Sharding(num_rows=num_rows, batch_size=batch_size, **values)  # type: ignore[arg-type]


def epoch_rows(shards: Sharding, epoch: int) -> list[int]:
    first = epoch * shards.steps_per_epoch + 1
    steps = [shards.step(step) for step in range(first, first + shards.steps_per_epoch)]
    assert all(step.epoch == epoch for step in steps)
    return [int(row) for step in steps for microbatches in step.replicas for rows in microbatches for row in rows]


@pytest.mark.parametrize(
    ("count", "parts", "sizes"),
    [(10, 4, (3, 3, 2, 2)), (8, 4, (2, 2, 2, 2)), (2, 4, (1, 1, 0, 0)), (0, 2, (0, 0)), (7, 1, (7,))],
)
def test_split_evenly_any_count_gives_larger_parts_first(count: int, parts: int, sizes: tuple[int, ...]) -> None:
    assert split_evenly(count, parts) == sizes


def test_step_10_rows_over_4_microbatches_has_sizes_3_3_2_2() -> None:
    step = sharding(10, 10, num_microbatches=4).step(1)

    assert [len(rows) for rows in step.replicas[0]] == [3, 3, 2, 2]
    assert step.num_rows == 10


def test_steps_drop_last_leaves_the_short_batch_out() -> None:
    shards = sharding(10, 4, drop_last=True)

    assert shards.steps_per_epoch == 2
    assert len(set(epoch_rows(shards, 0))) == 8


def test_steps_without_drop_last_keep_the_short_batch() -> None:
    shards = sharding(10, 4)

    assert shards.steps_per_epoch == 3
    assert [shards.step(number).num_rows for number in (1, 2, 3, 4)] == [4, 4, 2, 4]


def test_order_of_epochs_and_seeds_differs() -> None:
    orders = [row_order(num_rows=50, seed=seed, epoch=epoch).tolist() for seed in (1, 2) for epoch in (0, 1)]

    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_order_of_a_seed_never_changes() -> None:
    # Recorded once: a checkpoint written today continues with the same rows after any upgrade.
    assert row_order(num_rows=8, seed=42, epoch=0).tolist() == [5, 0, 6, 7, 3, 1, 4, 2]


def test_order_without_seed_is_file_order() -> None:
    assert epoch_rows(sharding(10, 4, seed=None), 5) == list(range(10))


def test_order_handed_out_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        row_order(num_rows=8, seed=42, epoch=0)[0] = 3


def test_step_0_is_refused() -> None:
    with pytest.raises(StepRangeError, match="step is 0"):
        sharding(10, 4).step(0)


def test_step_of_no_batch_is_refused() -> None:
    with pytest.raises(StepRangeError, match="3 rows make no batch of 4"):
        sharding(3, 4, drop_last=True).step(1)


@pytest.mark.parametrize(
    ("batch", "replicas", "slices", "size", "microbatches"),
    [(32, 1, 1, 4, 8), (32, 2, 1, 4, 4), (33, 1, 1, 4, 9), (32, 2, 2, 4, 2), (10, 3, 1, 2, 2)],
)
def test_microbatches_for_size_is_rows_over_all_of_them_rounded_up(
    batch: int, replicas: int, slices: int, size: int, microbatches: int
) -> None:
    found = microbatches_for_size(
        global_batch_size=batch, num_replicas=replicas, num_slices=slices, microbatch_size=size
    )

    assert found == microbatches
    shards = sharding(batch, batch, num_replicas=replicas, num_microbatches=slices * found)
    assert max(len(rows) for share in shards.step(1).replicas for rows in share) <= size


def test_rows_are_64_bit_whatever_the_platform() -> None:
    assert {rows.dtype for rows in sharding(5, 5).step(1).replicas[0]} == {np.dtype(np.int64)}
