"""The stages whose slowest one is as fast as can be."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from coordinator.partition import PartitionError

Fits = Callable[[int, int, int], bool]
"""(stage, first layer, end) -> whether the stage has room for these layers; if so, then for any part of them too."""

# Note [A bound is checked by the earliest starts]
# A bound on the slowest stage can be kept if stage 0 may start at layer 0, where a stage may start at a layer if it
# can end where the next one may start, is not empty, and costs no more than the bound. Costs are never negative, so a
# slice that keeps the bound keeps it with layers left out; and what fits a device fits with layers left out. Hence,
# from the last stage backwards, the earliest start of a stage is that of its longest slice that ends at the earliest
# start of the next one: whatever starts earlier and ends later contains a slice that is no longer allowed. And every
# later start is allowed as well, up to the one that leaves a layer for each stage behind: from before the next one's
# earliest start a stage takes a part of that longest slice, and from behind it one layer, which costs no more than
# the bound if that is at least the costliest layer. So one search in the sums of costs for each stage decides a bound,
# whose least value, an integer, takes one such check for each of its binary digits.
#
# One thing can spoil this: a layer that by itself has no room on some stage. Starts are then no longer all of those
# behind the earliest, so where such a layer is met they are listed one by one.


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosts:
    """What a step costs by layer, in integer units of time, for instance nanoseconds; none below 0."""

    layers: tuple[int, ...]
    """From the input on, at least one."""
    first: int = 0
    """What stage 0 costs beside its layers: the embeddings."""
    last: int = 0
    """What the last stage costs beside its layers: the head."""

    def of(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return what stages of ``sizes`` layers cost."""
        ends = tuple(accumulate(sizes))
        stages = [sum(self.layers[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
        stages[0] += self.first
        stages[-1] += self.last
        return tuple(stages)


def balanced_sizes(costs: LayerCosts, *, num_stages: int, fits: Fits | None = None) -> tuple[int, ...] | None:
    """Return the layers of each stage, none without one, so that the slowest stage costs as little as it can.

    Of several ways to do so it is one of small differences, the same for the same costs: each stage, the first one
    first, comes as close as it can to an equal share of what is left, and takes the more of two that are as close.

    Args:
        costs: of the whole model.
        num_stages: at least 1.
        fits: what a stage has room for; None: for anything.

    Returns:
        Sizes, stage 0 first; None where ``fits`` allows none.

    Raises:
        PartitionError: There is no stage, or there are more stages than layers.
    """
    num_layers = len(costs.layers)
    if num_stages < 1:
        raise PartitionError(f"{num_stages} stages, need at least 1")
    if num_stages > num_layers:
        raise PartitionError(f"{num_stages} stages for {num_layers} layers, each stage needs at least 1 layer")
    cuts = _Cuts(costs, num_stages, fits)
    whole = sum(costs.layers) + costs.first + costs.last
    if cuts.starts(whole) is None:
        return None
    ends = [cuts.cost(0, 0, 1), cuts.cost(num_stages - 1, num_layers - 1, num_layers)]
    least = max(*costs.layers, *ends)
    bound = least + bisect_left(range(least, whole), True, key=lambda bound: cuts.starts(bound) is not None)
    starts = cuts.starts(bound)
    assert starts is not None
    sizes = cuts.sizes(starts, bound)
    if sizes is None:
        sizes = cuts.sizes(cuts.listed_starts(bound), bound)
        assert sizes is not None
    return sizes


class _Cuts:
    """Where the layers of a model can be cut."""

    def __init__(self, costs: LayerCosts, num_stages: int, fits: Fits | None) -> None:
        self._num_layers = len(costs.layers)
        self._num_stages = num_stages
        self._sums = [0, *accumulate(costs.layers)]
        self._beside = [0] * num_stages
        self._beside[0] += costs.first
        self._beside[-1] += costs.last
        self._fits = fits

    def cost(self, stage: int, first: int, end: int) -> int:
        """Return what ``stage`` costs with these layers."""
        return self._sums[end] - self._sums[first] + self._beside[stage]

    def _has_room(self, stage: int, first: int, end: int) -> bool:
        return self._fits is None or self._fits(stage, first, end)

    def _earliest(self, stage: int, first: int, end: int) -> int:
        """Return from which layer on, at least ``first``, a stage has room up to ``end``."""
        if self._fits is None:
            return first
        return end - _most(end - first, lambda count: self._has_room(stage, end - count, end))

    def _num_ends(self, stage: int, first: int, ends: Sequence[int]) -> int:
        """Return up to how many of ``ends`` a stage has room from ``first`` on."""
        if self._fits is None:
            return len(ends)
        return _most(len(ends), lambda count: self._has_room(stage, first, ends[count - 1]))

    def _possible_starts(self, stage: int) -> range:
        """Return where a stage may start if each one before and behind it has a layer."""
        return range(stage, self._num_layers - self._num_stages + stage + 1) if stage else range(1)

    def starts(self, bound: int) -> list[Sequence[int]] | None:
        """Return where each stage and the end may start, ascending; None where the bound cannot be kept.

        See note [A bound is checked by the earliest starts]; starts after the earliest are those if every layer has
        room by itself.
        """
        starts: list[Sequence[int]] = [range(self._num_layers, self._num_layers + 1)]
        for stage in reversed(range(self._num_stages)):
            end = starts[-1][0]
            first = bisect_left(self._sums, self._sums[end] + self._beside[stage] - bound)
            if stage == 0:
                fits = first == 0 and self._has_room(0, 0, end)
                return [range(1), *starts[::-1]] if fits else None
            first = max(first, stage)  # a layer for each stage before
            first = self._earliest(stage, first, end)
            if first == end:
                if not any(self._has_room(stage, layer, layer + 1) for layer in self._possible_starts(stage)):
                    return None
                break
            starts.append(range(first, self._possible_starts(stage).stop))
        listed = self.listed_starts(bound)
        return listed if listed[0] else None

    def listed_starts(self, bound: int) -> list[Sequence[int]]:
        """Return the same, each start tried by itself; of a stage that none is possible for none."""
        starts: list[Sequence[int]] = [[self._num_layers]]
        for stage in reversed(range(self._num_stages)):
            later = starts[-1]
            tried = self._possible_starts(stage)
            ends = ((first, later[at]) for first in tried if (at := bisect_right(later, first)) < len(later))
            kept = ((first, end) for first, end in ends if self.cost(stage, first, end) <= bound)
            starts.append([first for first, end in kept if self._has_room(stage, first, end)])
        return starts[::-1]

    def sizes(self, starts: Sequence[Sequence[int]], bound: int) -> tuple[int, ...] | None:
        """Return sizes of little difference; None where a stage cannot end at any of ``starts``."""
        first, sizes = 0, []
        left = self._sums[-1] + sum(self._beside)
        for stage in range(self._num_stages):
            ends = starts[stage + 1]
            low = bisect_right(ends, first)
            high = bisect_right(ends, bound, low, key=lambda end: self.cost(stage, first, end))
            high = low + self._num_ends(stage, first, ends[low:high])
            if low == high:
                return None
            stages = self._num_stages - stage
            at = bisect_left(ends, left, low, high - 1, key=lambda end: stages * self.cost(stage, first, end))
            near = [ends[each] for each in (at, at - 1) if each >= low]
            end = min(near, key=lambda end: abs(stages * self.cost(stage, first, end) - left))
            left -= self.cost(stage, first, end)
            sizes.append(end - first)
            first = end
        return tuple(sizes)


def _most(limit: int, is_allowed: Callable[[int], bool]) -> int:
    """Return the most of 1 to ``limit`` that is allowed, where less than what is allowed is too; 0 if nothing is.

    It asks about few that are much more than that, since that may take longer.
    """
    most, above = 0, 1
    while above <= limit and is_allowed(above):
        most, above = above, 2 * above
    tried = range(most + 1, min(above, limit + 1))
    return most + bisect_left(tried, True, key=lambda count: not is_allowed(count))
