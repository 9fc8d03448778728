"""Balanced stages: the slowest one is as fast as it can be, whatever the layers cost and the devices hold."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.balanced import LayerCosts, balanced_sizes
from coordinator.partition import PartitionError

Fits = Callable[[int, int, int], bool]


def all_sizes(num_layers: int, num_stages: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to cut layers into stages of at least one."""
    for cuts in combinations(range(1, num_layers), num_stages - 1):
        bounds = (0, *cuts, num_layers)
        yield tuple(end - first for first, end in pairwise(bounds))


def slowest(costs: LayerCosts, sizes: Sequence[int]) -> int:
    first, stages = 0, []
    for size in sizes:
        stages.append(sum(costs.layers[first : first + size]))
        first += size
    stages[0] += costs.first
    stages[-1] += costs.last
    return max(stages)


def have_room(sizes: Sequence[int], fits: Fits) -> bool:
    ends = list(accumulate(sizes))
    return all(fits(stage, ends[stage] - size, ends[stage]) for stage, size in enumerate(sizes))


@st.composite
def models(draw: st.DrawFn) -> tuple[LayerCosts, int]:
    """Up to nine layers, some of which cost nothing, on one stage up to as many."""
    layers = draw(st.lists(st.one_of(st.just(0), st.integers(0, 12)), min_size=1, max_size=9))
    beside = st.one_of(st.just(0), st.integers(0, 30))
    num_stages = draw(st.one_of(st.just(1), st.just(len(layers)), st.integers(1, len(layers))))
    return LayerCosts(layers=tuple(layers), first=draw(beside), last=draw(beside)), num_stages


@given(models())
def test_balanced_sizes_are_a_cover_whose_slowest_stage_no_other_beats(model: tuple[LayerCosts, int]) -> None:
    costs, num_stages = model
    sizes = balanced_sizes(costs, num_stages=num_stages)
    assert sizes is not None
    assert len(sizes) == num_stages
    assert min(sizes) >= 1
    assert sum(sizes) == len(costs.layers)
    assert slowest(costs, sizes) == max(costs.of(sizes))
    assert slowest(costs, sizes) == min(slowest(costs, each) for each in all_sizes(len(costs.layers), num_stages))


@given(models(), st.data())
def test_balanced_sizes_with_limited_room_are_the_best_of_those_that_fit(
    model: tuple[LayerCosts, int], data: st.DataObject
) -> None:
    """Layers of different bytes, stages that hold different numbers of them and have different room, none included."""
    costs, num_stages = model
    num_layers = len(costs.layers)
    layer_bytes = data.draw(st.lists(st.integers(0, 6), min_size=num_layers, max_size=num_layers))
    in_flight = data.draw(st.lists(st.integers(1, 4), min_size=num_stages, max_size=num_stages))
    room = data.draw(st.lists(st.integers(0, 40), min_size=num_stages, max_size=num_stages))

    def fits(stage: int, first: int, end: int) -> bool:
        assert first < end, "an empty stage"
        return in_flight[stage] * sum(layer_bytes[first:end]) <= room[stage]

    sizes = balanced_sizes(costs, num_stages=num_stages, fits=fits)
    fitting = [each for each in all_sizes(num_layers, num_stages) if have_room(each, fits)]
    if sizes is None:
        assert not fitting
        return
    assert sum(sizes) == num_layers
    assert min(sizes) >= 1
    assert have_room(sizes, fits)
    assert slowest(costs, sizes) == min(slowest(costs, each) for each in fitting)


@given(models(), st.data())
def test_balanced_sizes_where_any_slices_may_fit_are_the_best_of_those(
    model: tuple[LayerCosts, int], data: st.DataObject
) -> None:
    """Room that says no more than that what fits still fits with layers left out."""
    costs, num_stages = model
    num_layers = len(costs.layers)
    refused = data.draw(
        st.sets(st.tuples(st.integers(0, num_stages - 1), st.integers(0, num_layers - 1), st.integers(1, 4)))
    )

    def fits(stage: int, first: int, end: int) -> bool:
        return not any(s == stage and first <= at and at + size <= end for s, at, size in refused)

    sizes = balanced_sizes(costs, num_stages=num_stages, fits=fits)
    fitting = [slowest(costs, each) for each in all_sizes(num_layers, num_stages) if have_room(each, fits)]
    assert (None if sizes is None else slowest(costs, sizes)) == min(fitting, default=None)
    assert sizes is None or have_room(sizes, fits)


def test_balanced_sizes_pass_a_layer_that_one_stage_has_no_room_for_to_another() -> None:
    """By hand: layer 2 has no room on stage 1, so stage 0 takes it, though that is not how costs are balanced."""
    costs = LayerCosts(layers=(1, 1, 1, 1, 1, 1))
    sizes = balanced_sizes(costs, num_stages=3, fits=lambda stage, first, end: not (stage == 1 and first <= 2 < end))
    assert sizes == (3, 2, 1)


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "sizes"),
    [(10, 3, (3, 4, 3)), (30, 4, (8, 7, 8, 7)), (12, 4, (3, 3, 3, 3)), (4, 4, (1, 1, 1, 1)), (5, 1, (5,))],
)
def test_balanced_sizes_of_layers_alike_differ_by_at_most_one(
    num_layers: int, num_stages: int, sizes: tuple[int, ...]
) -> None:
    """H63: where nothing but layers costs anything, balanced stages are as even as even ones."""
    assert balanced_sizes(LayerCosts(layers=(7,) * num_layers), num_stages=num_stages) == sizes


@given(st.integers(1, 60).flatmap(lambda layers: st.tuples(st.just(layers), st.integers(1, layers))))
def test_balanced_sizes_of_any_number_of_layers_alike_differ_by_at_most_one(counts: tuple[int, int]) -> None:
    sizes = balanced_sizes(LayerCosts(layers=(3,) * counts[0]), num_stages=counts[1])
    assert sizes is not None
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("first", "last", "sizes"),
    [
        # an embedding whose update costs two layers and more: stage 0 has fewer of them
        (25, 0, (2, 5, 5, 4)),
        # a head over a vocabulary: the last stage has fewer
        (0, 25, (5, 5, 4, 2)),
        # an embedding that alone is the slowest stage: one layer stays with it, the others are shared evenly
        (90, 0, (1, 5, 5, 5)),
    ],
)
def test_balanced_sizes_leave_room_for_what_the_ends_compute(first: int, last: int, sizes: tuple[int, ...]) -> None:
    """Stage 0's update of the embedding took five times the last stage's, and equal layer counts did not see it."""
    assert balanced_sizes(LayerCosts(layers=(10,) * 16, first=first, last=last), num_stages=4) == sizes


def test_balanced_sizes_leave_no_stage_empty_where_stages_that_end_at_the_mean_would() -> None:
    """By hand: stages that end once they reach the mean, 16/3, are 2+2+2 and 2+2+6, and none is left for the third."""
    assert balanced_sizes(LayerCosts(layers=(2, 2, 2, 2, 2, 6)), num_stages=3) == (3, 2, 1)


def test_balanced_sizes_of_4096_layers_on_1024_stages_take_well_below_a_second() -> None:
    layers = tuple(900_000 + 7919 * index % 200_000 for index in range(4096))
    costs = LayerCosts(layers=layers, first=21_000_000, last=9_000_000)
    began = time.process_time()
    free = balanced_sizes(costs, num_stages=1024)
    in_flight = range(1024, 0, -1)  # as in 1f1b
    tight = balanced_sizes(
        costs, num_stages=1024, fits=lambda stage, first, end: in_flight[stage] * (end - first) < 5e3
    )
    assert time.process_time() - began < 1
    assert free is not None
    assert tight is not None
    assert slowest(costs, free) == 21_000_000 + layers[0]
    assert sum(tight) == 4096


def test_balanced_sizes_of_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(PartitionError, match="5 stages for 4 layers, each stage needs at least 1 layer"):
        balanced_sizes(LayerCosts(layers=(1, 1, 1, 1)), num_stages=5)


def test_balanced_sizes_of_no_stages_are_refused() -> None:
    with pytest.raises(PartitionError, match="0 stages, need at least 1"):
        balanced_sizes(LayerCosts(layers=(1,)), num_stages=0)
