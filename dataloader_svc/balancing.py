"""Regroups the rows of one global batch by length, so that little of a microbatch is padding. Pure.

n rows, G groups.
"""

import math
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from dataloader_svc.group_sums import Sizes, greatest_sum, least_sum, least_sum_from
from dataloader_svc.sharding import Grouping, RowNumbers

MOST_UNEVEN = 1.5
"""How much larger than their mean the largest group may be, by rows x width: a pipeline waits for its slowest part."""
MOST_PLACES = 128
"""Places between rows that are tried as ends of groups; of more rows, these many at even distances."""

_Integers = npt.NDArray[np.int64]


def length_balanced(lengths_N: _Integers) -> Grouping:
    """Return what groups the rows of a split of these lengths, in tokens.

    Group k of a batch, the shortest rows first, is microbatch k // R of a replica: forth and back over the R
    replicas, so that they have about as much to do.
    """

    def grouping(rows: RowNumbers, num_replicas: int, num_microbatches: int) -> tuple[tuple[RowNumbers, ...], ...]:
        by_length = rows[np.argsort(lengths_N[rows], kind="stable")]
        by_length.flags.writeable = False  # a grouping may be kept for several callers
        ends = group_ends(lengths_N[by_length], num_replicas * num_microbatches)
        groups = np.split(by_length, ends[:-1])
        turns = [groups[first : first + num_replicas] for first in range(0, len(groups), num_replicas)]
        forth_and_back = [turn if index % 2 == 0 else turn[::-1] for index, turn in enumerate(turns)]
        return tuple(zip(*forth_and_back, strict=True))

    return grouping


def group_ends(lengths_n: _Integers, num_groups: int) -> list[int]:
    """Return where each of ``num_groups`` groups of neighbours ends; the last ones are empty where rows are few.

    The grouping of the least sum of rows x width whose largest group is at most `MOST_UNEVEN` times the mean; where
    there is none, the one whose largest group is least. Of more rows than `MOST_PLACES` only groupings that no other
    one betters in both the sum and the largest group are looked at.

    >>> group_ends(np.array([3, 3, 3, 9, 9]), 2)
    [3, 5]

    Args:
        lengths_n: ascending.
        num_groups: at least 1.
    """
    num_rows = len(lengths_n)
    num_filled = min(num_rows, num_groups)
    if num_filled == 0:
        return [0] * num_groups
    places = _places(num_rows, num_filled)
    if len(places) == num_filled + 1:  # each place ends a group, be they thousands
        return [int(place) for place in places[1:]] + [num_rows] * (num_groups - num_filled)
    steps = _even_steps(_sizes(lengths_n, places), num_filled, every_sum=num_rows <= MOST_PLACES)
    return [int(places[step]) for step in steps] + [num_rows] * (num_groups - num_filled)


def _even_steps(sizes: Sizes, num_groups: int, *, every_sum: bool) -> list[int]:
    """Return the places where the groups of the rule end.

    Args:
        every_sum: look at groupings, too, that another one betters in both the sum and the largest group: by their
            waste their mean is larger.
    """

    def least(limit: int) -> float:
        return least_sum(sizes, num_groups, limit=limit)[0]

    limits = np.unique(sizes[np.isfinite(sizes)]).astype(np.int64)
    # The least sum falls as the limit rises, so what is asked of a limit changes its answer once.
    uneven = bisect_left(limits, True, key=lambda limit: limit > MOST_UNEVEN * least(limit) / num_groups)
    total = least(limits[uneven - 1]) if uneven else math.inf
    evenest = bisect_left(limits, True, key=lambda limit: least(limit) <= total) if math.isfinite(total) else uneven
    steps = least_sum(sizes, num_groups, limit=limits[evenest])[1]
    if not every_sum:
        return steps
    highest: float = limits[
        -1
    ]  # that any grouping fits: where the greatest sum is too small, no larger limit can be met
    while (met := MOST_UNEVEN * greatest_sum(sizes, num_groups, limit=highest) / num_groups) < highest:
        highest = met
    for limit in limits[uneven:]:
        needed = math.ceil(limit * num_groups / MOST_UNEVEN)
        if limit > highest or needed >= total:
            break
        if found := least_sum_from(sizes, num_groups, limit=limit, total=needed, below=total):
            total, steps = found
    return steps


def _places(num_rows: int, num_filled: int) -> _Integers:
    """Return the places between rows where a group may end, 0 and the end among them."""
    num_places = max(min(num_rows, MOST_PLACES), num_filled)
    return np.arange(num_places + 1) * num_rows // num_places


def _sizes(lengths_n: _Integers, places: _Integers) -> Sizes:
    """Return rows x width of the group between each two places; infinite where it has no rows."""
    num_rows = places[None, :] - places[:, None]
    width = np.concatenate(([0], lengths_n))[places]
    return np.where(num_rows > 0, num_rows * width[None, :], np.inf)
