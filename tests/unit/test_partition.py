"""Partition of layers over stages, even or given (case H63)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.partition import PartitionError, StageSlice, even_partition, explicit_partition


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "sizes"),
    [
        (10, 3, [4, 3, 3]),
        (30, 4, [8, 8, 7, 7]),
        (7, 2, [4, 3]),
        (12, 5, [3, 3, 2, 2, 2]),
        (4, 4, [1, 1, 1, 1]),
        (6, 1, [6]),
    ],
)
def test_even_partition_of_known_counts_has_the_larger_stages_first(
    num_layers: int, num_stages: int, sizes: list[int]
) -> None:
    assert [piece.num_layers for piece in even_partition(num_layers=num_layers, num_stages=num_stages)] == sizes


@given(st.integers(1, 200).flatmap(lambda layers: st.tuples(st.just(layers), st.integers(1, layers))))
def test_even_partition_covers_every_layer_once_in_order(counts: tuple[int, int]) -> None:
    num_layers, num_stages = counts
    slices = even_partition(num_layers=num_layers, num_stages=num_stages)
    layers = [layer for s in slices for layer in range(s.first_layer, s.first_layer + s.num_layers)]
    sizes = [piece.num_layers for piece in slices]
    assert layers == list(range(num_layers))
    assert [piece.stage for piece in slices] == list(range(num_stages))
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_even_partition_with_more_stages_than_layers_is_refused() -> None:
    with pytest.raises(PartitionError, match="5 stages for 4 layers, each stage needs at least 1 layer"):
        even_partition(num_layers=4, num_stages=5)


def test_even_partition_without_stages_is_refused() -> None:
    with pytest.raises(PartitionError, match="0 stages, need at least 1"):
        even_partition(num_layers=4, num_stages=0)


def test_explicit_partition_puts_stages_one_behind_the_other() -> None:
    assert explicit_partition([3, 1, 4], num_layers=8) == (
        StageSlice(stage=0, first_layer=0, num_layers=3),
        StageSlice(stage=1, first_layer=3, num_layers=1),
        StageSlice(stage=2, first_layer=4, num_layers=4),
    )


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([3, 1], "stages of 4 layers in all, the model has 5"),
        ([3, 3], "stages of 6 layers in all, the model has 5"),
        ([5, 0], "each stage needs at least 1 layer"),
        ([6, -1], "each stage needs at least 1 layer"),
        ([], "each stage needs at least 1 layer"),
    ],
)
def test_explicit_partition_that_is_no_cover_is_refused(sizes: list[int], message: str) -> None:
    """H63: no layer vanishes, none is held twice."""
    with pytest.raises(PartitionError, match=message):
        explicit_partition(sizes, num_layers=5)
