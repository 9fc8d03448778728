"""Few rows that hold every pair of values: faults of one factor, and of any two together, show in some row.

Czerwonka, "Pairwise Testing in Real World" (2006), describes the kind of greedy search; this one has no chance in it.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

Row = dict[str, object]
"""A value of each factor, by name."""
Pair = tuple[tuple[str, int], tuple[str, int]]
"""Two factors by name, in their given order, each with the place of its value."""


def covering(factors: Mapping[str, Sequence[object]]) -> list[Row]:
    """Return rows in which every two values of two factors meet, the same ones every time.

    Every row begins with a pair that no earlier row has; the other factors take, one by one, the value that adds
    most new pairs, and of several the one that has met the row's values least, so that no two factors go together.
    """
    names = list(factors)
    missing = set(pairs := _pairs(factors))
    met: Counter[Pair] = Counter()
    rows: list[Row] = []
    for pair in pairs:
        if pair not in missing:
            continue
        chosen = dict(pair)
        for name in names:
            if name not in chosen:
                chosen[name] = _best(chosen, name, len(factors[name]), names, missing=missing, met=met)
        row = list(itertools.combinations(((name, chosen[name]) for name in names), 2))
        missing.difference_update(row)
        met.update(row)
        rows.append({name: factors[name][chosen[name]] for name in names})
    return rows


def every(factors: Mapping[str, Sequence[object]]) -> list[Row]:
    """Return all rows."""
    return [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]


def _pairs(factors: Mapping[str, Sequence[object]]) -> list[Pair]:
    return [
        ((one, first), (other, second))
        for one, other in itertools.combinations(factors, 2)
        for first, second in itertools.product(range(len(factors[one])), range(len(factors[other])))
    ]


def _best(
    chosen: Mapping[str, int],
    name: str,
    num_values: int,
    names: Sequence[str],
    *,
    missing: AbstractSet[Pair],
    met: Mapping[Pair, int],
) -> int:
    """Return the place of the value that a factor takes beside the chosen ones."""
    order = {each: index for index, each in enumerate(names)}

    def worth(place: int) -> tuple[int, int]:
        new = (name, place)
        pairs = [(item, new) if order[item[0]] < order[name] else (new, item) for item in chosen.items()]
        return sum(pair in missing for pair in pairs), -sum(met[pair] for pair in pairs)

    return max(range(num_values), key=worth)
