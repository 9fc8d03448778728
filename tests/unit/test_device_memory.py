"""Balanced stages under a memory limit: never more than a device has, and the best that fits."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.balanced import LayerCosts, balanced_sizes
from coordinator.device_memory import DeviceMemory, sizes_in_memory
from coordinator.partition import PartitionError
from coordinator.schedule.placement import looping, v_shaped


def all_sizes(num_layers: int, num_stages: int) -> Iterator[tuple[int, ...]]:
    for cuts in combinations(range(1, num_layers), num_stages - 1):
        yield tuple(end - first for first, end in pairwise((0, *cuts, num_layers)))


def fullest(memory: DeviceMemory, sizes: tuple[int, ...]) -> int:
    """Return the bytes of the fullest device, added up stage by stage."""
    held = dict.fromkeys(memory.worker_by_stage, 0)
    for stage, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        held[memory.worker_by_stage[stage]] += memory.stage_bytes(stage, end - size, end)
    return max(held.values())


@st.composite
def cases(draw: st.DrawFn, *, most_chunks: int) -> tuple[LayerCosts, DeviceMemory]:
    """Layers of different costs and bytes, stages of different fixed bytes and microbatches in flight."""
    workers, chunks = draw(st.integers(1, 4)), draw(st.integers(1, most_chunks))
    num_stages = workers * chunks
    layers = draw(st.lists(st.integers(0, 9), min_size=num_stages, max_size=max(8, num_stages)))
    per_layer = draw(st.lists(st.integers(0, 5), min_size=len(layers), max_size=len(layers)))
    in_flight = draw(st.lists(st.integers(1, 4), min_size=num_stages, max_size=num_stages))
    fixed = draw(st.lists(st.integers(0, 6), min_size=num_stages, max_size=num_stages))
    placement = v_shaped(workers) if chunks == 2 and draw(st.booleans()) else looping(workers, chunks)
    memory = DeviceMemory(
        limit_bytes=draw(st.integers(0, 60)),
        stage_bytes=lambda stage, first, end: fixed[stage] + in_flight[stage] * sum(per_layer[first:end]),
        worker_by_stage=placement.worker_by_stage,
    )
    costs = LayerCosts(layers=tuple(layers), first=draw(st.integers(0, 20)), last=draw(st.integers(0, 20)))
    return costs, memory


def outcome(costs: LayerCosts, memory: DeviceMemory) -> tuple[int, ...] | str:
    """Return the sizes, or why there are none."""
    try:
        return sizes_in_memory(costs, memory)
    except PartitionError as error:
        return str(error)


@given(cases(most_chunks=1))
def test_sizes_on_devices_of_one_stage_are_the_best_that_fit(case: tuple[LayerCosts, DeviceMemory]) -> None:
    costs, memory = case
    every = list(all_sizes(len(costs.layers), len(memory.worker_by_stage)))
    fitting = [sizes for sizes in every if fullest(memory, sizes) <= memory.limit_bytes]
    sizes = outcome(costs, memory)
    if isinstance(sizes, str):
        assert not fitting
        assert f"needs a limit of {min(fullest(memory, each) for each in every)} bytes" in sizes
        return
    assert fullest(memory, sizes) <= memory.limit_bytes
    assert max(costs.of(sizes)) == min(max(costs.of(each)) for each in fitting)


@given(cases(most_chunks=3))
def test_sizes_on_devices_of_several_stages_never_exceed_the_limit(case: tuple[LayerCosts, DeviceMemory]) -> None:
    """And a limit that is said to be enough is."""
    costs, memory = case
    sizes = outcome(costs, memory)
    if isinstance(sizes, str):
        enough = int(sizes.split("needs a limit of ")[1].split()[0])
        assert enough > memory.limit_bytes
        assert fullest(memory, sizes_in_memory(costs, replace(memory, limit_bytes=enough))) <= enough
        return
    assert fullest(memory, sizes) <= memory.limit_bytes
    assert len(sizes) == len(memory.worker_by_stage)
    assert min(sizes) >= 1
    assert sum(sizes) == len(costs.layers)


@given(cases(most_chunks=3))
def test_sizes_are_those_without_a_limit_where_these_fit(case: tuple[LayerCosts, DeviceMemory]) -> None:
    costs, memory = case
    free = balanced_sizes(costs, num_stages=len(memory.worker_by_stage))
    assert free is not None
    assert sizes_in_memory(costs, replace(memory, limit_bytes=fullest(memory, free))) == free


def test_stages_with_more_microbatches_in_flight_get_fewer_layers() -> None:
    """By hand: 1f1b on four stages holds 4, 3, 2, 1 microbatches; 12 bytes are 3, 4, 6 and 12 layers at most."""
    memory = DeviceMemory(
        limit_bytes=12,
        stage_bytes=lambda stage, first, end: (4 - stage) * (end - first),
        worker_by_stage=(0, 1, 2, 3),
    )
    assert sizes_in_memory(LayerCosts(layers=(1,) * 16), memory) == (3, 4, 5, 4)
    assert sizes_in_memory(LayerCosts(layers=(1,) * 25), memory) == (3, 4, 6, 12)


def test_layers_that_fit_nowhere_are_refused_with_the_stage_its_need_and_what_to_do() -> None:
    """By hand: one layer more than the 25 that 12 bytes hold; with 13 bytes the last stage takes 13."""
    memory = DeviceMemory(
        limit_bytes=12,
        stage_bytes=lambda stage, first, end: (4 - stage) * (end - first),
        worker_by_stage=(0, 1, 2, 3),
    )
    with pytest.raises(PartitionError) as caught:
        sizes_in_memory(LayerCosts(layers=(1,) * 26), memory)
    assert str(caught.value) == (
        "no sizes were found whose stages fit into 12 bytes a device: of those that need least, "
        "stage 3 with layers 13-25 needs 13 bytes; "
        "needs a limit of 13 bytes, more workers, smaller microbatches, or train.recompute"
    )


def test_layers_that_fit_no_worker_of_two_stages_are_refused_with_both_stages() -> None:
    """In a V worker 0 has the first stage and the last: 10 bytes a layer and 5 of the embeddings."""
    memory = DeviceMemory(
        limit_bytes=24,
        stage_bytes=lambda stage, first, end: 10 * (end - first) + (5 if stage == 0 else 0),
        worker_by_stage=v_shaped(2).worker_by_stage,
    )
    with pytest.raises(PartitionError) as caught:
        sizes_in_memory(LayerCosts(layers=(1,) * 4), memory)
    assert (
        "stage 0 with layer 0 needs 15 bytes and stage 3 with layer 3 needs 10 bytes, 25 bytes in all on worker 0"
        in (str(caught.value))
    )


def test_a_worker_of_two_stages_has_its_memory_divided_by_what_they_need() -> None:
    """By hand: stages 0 and 3 share 10 bytes, at 2 and 1 a layer; evenly divided, stage 0 would have room for two."""
    memory = DeviceMemory(
        limit_bytes=10,
        stage_bytes=lambda stage, first, end: (2, 1, 1, 1)[stage] * (end - first),
        worker_by_stage=v_shaped(2).worker_by_stage,
    )
    sizes = sizes_in_memory(LayerCosts(layers=(1,) * 13), memory)
    assert fullest(memory, sizes) <= 10
    assert max(sizes) == 4


def test_sizes_of_1024_layers_on_128_workers_of_two_stages_take_no_second() -> None:
    in_flight = [min(128, 256 - stage) for stage in range(256)]
    memory = DeviceMemory(
        limit_bytes=1000,
        stage_bytes=lambda stage, first, end: in_flight[stage] * (end - first),
        worker_by_stage=v_shaped(128).worker_by_stage,
    )
    began = time.process_time()
    sizes = sizes_in_memory(LayerCosts(layers=(1_000_000,) * 1024, first=9_000_000), memory)
    assert time.process_time() - began < 1
    assert fullest(memory, sizes) <= 1000
