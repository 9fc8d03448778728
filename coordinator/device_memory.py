"""Balanced stages on devices whose memory is limited."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from coordinator.balanced import LayerCosts, balanced_sizes
from coordinator.partition import PartitionError, even_partition

_ROUNDS = 4
"""How often sizes are made better from those of the round before, where a device holds several stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What the stages of a device may take together."""

    limit_bytes: int
    """Of one device."""
    stage_bytes: Callable[[int, int, int], int]
    """(stage, first layer, end) -> bytes of the stage with these layers, at least one; never more with some of them
    left out."""
    worker_by_stage: tuple[int, ...]
    """The device of each stage, stage 0 first, each with equally many."""

    @property
    def num_devices(self) -> int:
        """Devices of one replica."""
        return max(self.worker_by_stage) + 1

    def of_stages(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the bytes of stages of ``sizes`` layers."""
        ends = accumulate(sizes)
        return tuple(self.stage_bytes(s, end - n, end) for s, (n, end) in enumerate(zip(sizes, ends, strict=True)))

    def of_devices(self, stage_bytes: Sequence[int]) -> tuple[int, ...]:
        """Return the bytes of each device whose stages take ``stage_bytes``."""
        total = [0] * self.num_devices
        for worker, taken in zip(self.worker_by_stage, stage_bytes, strict=True):
            total[worker] += taken
        return tuple(total)

    def fullest(self, sizes: Sequence[int]) -> int:
        """Return the bytes of the fullest device with stages of ``sizes`` layers."""
        return max(self.of_devices(self.of_stages(sizes)))


def sizes_in_memory(costs: LayerCosts, memory: DeviceMemory) -> tuple[int, ...]:
    """Return the layers of each stage, so that the slowest stage costs as little as it can where no device is too full.

    Where a device holds one stage that is exact. Where it holds several, no device ever gets more than its limit
    either, but the slowest stage may be slower than it had to be, and layers may be refused that some other sizes
    would have found room for: a device's memory is divided among its stages as some sizes that are known need it, and
    of what fits then the best is taken.

    Raises:
        PartitionError: Nothing that was tried fits; the text says which stage needs how much, and what to do. Or there
            are more stages than layers.
    """
    num_stages, num_layers = len(memory.worker_by_stage), len(costs.layers)
    alone = _balanced(costs, memory, [memory.limit_bytes] * num_stages)
    if alone is not None and memory.fullest(alone) <= memory.limit_bytes:
        return alone  # each stage could have had a device for itself, so nothing that fits is faster
    even = tuple(piece.num_layers for piece in even_partition(num_layers=num_layers, num_stages=num_stages))
    low = _least(memory, even, lambda room: [room] * num_stages, most=max(memory.of_stages(even)))
    smallest = low
    if num_stages > memory.num_devices:
        smallest = min((_smaller(memory, sizes) for sizes in (low, even)), key=memory.fullest)
    if memory.fullest(smallest) > memory.limit_bytes:
        raise PartitionError(_too_little(memory, smallest))
    best = smallest
    for like in (smallest, even, low, *([alone] if alone is not None else [])):
        best = _better(costs, memory, best, like)
    for _ in range(_ROUNDS):
        best = _better(costs, memory, best, best)
    return best


def _better(costs: LayerCosts, memory: DeviceMemory, best: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    """Return the better of ``best`` and of what fits if memory is divided as ``like`` needs it."""
    sizes = _balanced(costs, memory, _shares(memory, like, memory.limit_bytes))
    return best if sizes is None or max(costs.of(sizes)) >= max(costs.of(best)) else sizes


def _balanced(costs: LayerCosts, memory: DeviceMemory, rooms: Sequence[int]) -> tuple[int, ...] | None:
    """Return the best sizes for stages of which each has ``rooms`` bytes for itself."""
    return balanced_sizes(
        costs,
        num_stages=len(rooms),
        fits=lambda stage, first, end: memory.stage_bytes(stage, first, end) <= rooms[stage],
    )


def _shares(memory: DeviceMemory, sizes: Sequence[int], limit_bytes: int) -> list[int]:
    """Return the bytes for each stage if what a device has is divided as stages of ``sizes`` layers need it.

    Each stage has what it needs with one layer, and of what is left a share as large as that of what it needs more.
    """
    needed, num_layers = memory.of_stages(sizes), sum(sizes)
    firsts = [*range(len(sizes) - 1), num_layers - 1]
    one = [min(own, memory.stage_bytes(s, firsts[s], firsts[s] + 1)) for s, own in enumerate(needed)]
    more = [own - least for own, least in zip(needed, one, strict=True)]
    least_by_device, more_by_device = memory.of_devices(one), memory.of_devices(more)
    num_chunks = len(sizes) // memory.num_devices

    def share(stage: int) -> int:
        worker = memory.worker_by_stage[stage]
        left = limit_bytes - least_by_device[worker]
        if more_by_device[worker] == 0:
            return one[stage] + left // num_chunks
        return one[stage] + left * more[stage] // more_by_device[worker]

    return [share(stage) for stage in range(len(sizes))]


def _smaller(memory: DeviceMemory, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return sizes whose fullest device has no more than with ``sizes``, and as little as a few rounds find."""
    for _ in range(_ROUNDS):
        most = memory.fullest(sizes)
        found = _least(memory, sizes, partial(_shares, memory, sizes), most=most)
        if memory.fullest(found) >= most:
            break
        sizes = found
    return sizes


def _least(
    memory: DeviceMemory, sizes: Sequence[int], rooms: Callable[[int], Sequence[int]], *, most: int
) -> tuple[int, ...]:
    """Return sizes that fit into ``rooms`` of the fewest bytes, at most ``most``, into which ``sizes`` fit."""
    free, alike = (LayerCosts(layers=(cost,) * sum(sizes)) for cost in (0, 1))
    least = bisect_left(range(most), True, key=lambda given: _balanced(free, memory, rooms(given)) is not None)
    found = _balanced(alike, memory, rooms(least))
    assert found is not None
    return found


def _too_little(memory: DeviceMemory, smallest: Sequence[int]) -> str:
    needed, ends = memory.of_stages(smallest), list(accumulate(smallest))
    devices = memory.of_devices(needed)
    device = devices.index(max(devices))
    own = [stage for stage, worker in enumerate(memory.worker_by_stage) if worker == device]
    told = [f"stage {s} with {_layers(ends[s] - smallest[s], ends[s])} needs {needed[s]} bytes" for s in own]
    whole = f", {max(devices)} bytes in all on worker {device}" if len(own) > 1 else ""
    return (
        f"no sizes were found whose stages fit into {memory.limit_bytes} bytes a device: of those that need least, "
        f"{' and '.join(told)}{whole}; needs a limit of {max(devices)} bytes, more workers, "
        "smaller microbatches, or train.recompute"
    )


def _layers(first: int, end: int) -> str:
    return f"layer {first}" if end - first == 1 else f"layers {first}-{end - 1}"
