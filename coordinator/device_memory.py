"""Balanced stages on devices whose memory is limited."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from coordinator.balanced import LayerCosts, balanced_sizes
from coordinator.partition import PartitionError, even_partition


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

    def of_stages(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the bytes of stages of ``sizes`` layers."""
        ends = accumulate(sizes)
        return tuple(self.stage_bytes(s, end - n, end) for s, (n, end) in enumerate(zip(sizes, ends, strict=True)))

    def of_devices(self, stage_bytes: Sequence[int]) -> tuple[int, ...]:
        """Return the bytes of each device whose stages take ``stage_bytes``."""
        total = [0] * (max(self.worker_by_stage) + 1)
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
    would have found room for: a device's memory is given to its stages in the proportions in which a few sizes that
    were made without a limit for each stage need it, and of what comes of these the best is taken.

    Raises:
        PartitionError: Nothing that was tried fits; the text says which stage needs how much, and what to do. Or there
            are more stages than layers.
    """
    num_stages, num_layers = len(memory.worker_by_stage), len(costs.layers)
    alone = _balanced(costs, memory, [memory.limit_bytes] * num_stages)
    if alone is not None and memory.fullest(alone) <= memory.limit_bytes:
        return alone  # each stage could have had a device for itself, so nothing that fits is faster
    smallest = _smallest(memory, num_layers=num_layers)
    even = [piece.num_layers for piece in even_partition(num_layers=num_layers, num_stages=num_stages)]
    shared = (_balanced(costs, memory, _shares(memory, like)) for like in (smallest, even, alone) if like is not None)
    found = [sizes for sizes in shared if sizes is not None]
    if not found:
        raise PartitionError(_too_little(memory, smallest))
    return min(found, key=lambda sizes: max(costs.of(sizes)))


def _balanced(costs: LayerCosts, memory: DeviceMemory, rooms: Sequence[int]) -> tuple[int, ...] | None:
    """Return the best sizes for stages of which each has ``rooms`` bytes for itself."""
    return balanced_sizes(
        costs,
        num_stages=len(rooms),
        fits=lambda stage, first, end: memory.stage_bytes(stage, first, end) <= rooms[stage],
    )


def _shares(memory: DeviceMemory, sizes: Sequence[int]) -> list[int]:
    """Return the bytes for each stage if every device is divided as stages of ``sizes`` layers would need it."""
    needed = memory.of_stages(sizes)
    devices = memory.of_devices(needed)
    shares = zip(needed, memory.worker_by_stage, strict=True)
    return [memory.limit_bytes * own // max(1, devices[worker]) for own, worker in shares]


def _smallest(memory: DeviceMemory, *, num_layers: int) -> tuple[int, ...]:
    """Return sizes whose largest stage takes as few bytes as it can."""
    free, num_stages = LayerCosts(layers=(0,) * num_layers), len(memory.worker_by_stage)
    even = [piece.num_layers for piece in even_partition(num_layers=num_layers, num_stages=num_stages)]
    most = max(memory.of_stages(even))
    room = bisect_left(range(most), True, key=lambda room: _balanced(free, memory, [room] * num_stages) is not None)
    sizes = _balanced(free, memory, [room] * num_stages)
    assert sizes is not None
    return sizes


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
