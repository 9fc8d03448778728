"""Sums of the sizes of neighbouring groups: the least one, and the least one of at least a given sum. Pure.

P + 1 places between rows, the first before all rows and the last behind them; a group is what lies between two places.
"""

import math

import numpy as np
import numpy.typing as npt

Sizes = npt.NDArray[np.float64]
"""(P + 1, P + 1): the size of the group between each two places, a whole number; infinite where there is none."""


def least_sum(sizes: Sizes, num_groups: int, *, limit: float) -> tuple[float, list[int]]:
    """Return the least sum of groups of at most ``limit``, infinite where there is none, and the ends of its groups."""
    within = np.where(sizes <= limit, sizes, np.inf)
    num_spare = len(sizes) - 1 - num_groups  # after k groups k to k + num_spare places are behind, as each takes one
    best = within[0, 1 : num_spare + 2]
    came_from = []
    for done in range(1, num_groups):
        sums = best[:, None] + within[done : done + num_spare + 1, done + 1 : done + num_spare + 2]
        came_from.append(done + sums.argmin(axis=0))
        best = sums.min(axis=0)
    ends = [len(sizes) - 1]
    for done in range(num_groups - 1, 0, -1):
        ends.append(int(came_from[done - 1][ends[-1] - done - 1]))
    return float(best[-1]), ends[::-1]


def greatest_sum(sizes: Sizes, num_groups: int, *, limit: float) -> float:
    """Return the greatest sum of groups of at most ``limit``, minus infinity where there is none."""
    return -least_sum(np.where(sizes <= limit, -sizes, np.inf), num_groups, limit=math.inf)[0]


def least_sum_from(
    sizes: Sizes, num_groups: int, *, limit: int, total: int, below: float
) -> tuple[int, list[int]] | None:
    """Return the least sum from ``total`` to ``below``, exclusive, of groups of at most ``limit``, and their ends.

    Exact: of each place and number of groups it keeps all sums that can still end below, as the bits of one integer
    that counts from the least one there.
    """
    below = min(below, greatest_sum(sizes, num_groups, limit=limit) + 1)
    if below <= total:
        return None
    last = len(sizes) - 1
    from_the_start, to_the_end = _least_sums(np.where(sizes <= limit, sizes, np.inf), num_groups)
    reached: list[dict[int, int]] = [{0: 1}]
    for done in range(num_groups):
        room = below - 1 - to_the_end[num_groups - done - 1]
        reached.append({})
        for start, sums in reached[done].items():
            reaching = np.where(sizes[start] <= limit, from_the_start[done][start] + sizes[start], np.inf)
            for end in map(int, np.flatnonzero(reaching <= room)):
                base = from_the_start[done + 1][end]
                kept = (sums << int(reaching[end] - base)) & ((1 << int(room[end] - base + 1)) - 1)
                reached[-1][end] = reached[-1].get(end, 0) | kept
    if last not in reached[-1]:
        return None
    base = int(from_the_start[num_groups][last])
    total = max(total, base)
    found = reached[-1][last] >> (total - base)
    if not found:
        return None
    total += (found & -found).bit_length() - 1
    ends = [last]
    remaining = total
    for done in range(num_groups - 1, 0, -1):
        for start, sums in reached[done].items():
            above = remaining - sizes[start, ends[-1]] - from_the_start[done][start]
            if sizes[start, ends[-1]] <= limit and above >= 0 and sums >> int(above) & 1:
                remaining -= int(sizes[start, ends[-1]])
                ends.append(start)
                break
    return total, ends[::-1]


def _least_sums(sizes: Sizes, num_groups: int) -> tuple[list[npt.NDArray[np.float64]], list[npt.NDArray[np.float64]]]:
    """Return the least sums of 0, 1, 2 ... groups: from the first place to each, and from each to the last."""
    num_places = len(sizes)
    from_the_start = [np.where(np.arange(num_places) == 0, 0.0, np.inf)]
    to_the_end = [from_the_start[0][::-1]]
    for _ in range(num_groups):
        from_the_start.append((from_the_start[-1][:, None] + sizes).min(axis=0))
        to_the_end.append((sizes + to_the_end[-1]).min(axis=1))
    return from_the_start, to_the_end
