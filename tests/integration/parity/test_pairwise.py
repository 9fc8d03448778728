"""The choice of rows itself: complete, the same every time, and much smaller than all rows."""

import itertools
import math

import pytest

from tests.integration.parity.matrix import BITS, FACTORS
from tests.integration.parity.pairwise import covering, every

SMALL = {"a": ("x", "y", "z"), "b": (1, 2, 3), "c": (False, True), "d": (None, 0)}


@pytest.mark.parametrize("factors", [SMALL, FACTORS, BITS], ids=["small", "matrix", "bits"])
def test_covering_rows_hold_every_pair_of_values_of_any_two_factors(factors: dict[str, tuple[object, ...]]) -> None:
    rows = covering(factors)
    for one, other in itertools.combinations(factors, 2):
        found = {(row[one], row[other]) for row in rows}
        assert found == set(itertools.product(factors[one], factors[other])), (one, other)


@pytest.mark.parametrize("factors", [SMALL, FACTORS, BITS], ids=["small", "matrix", "bits"])
def test_covering_rows_are_few_and_the_same_every_time(factors: dict[str, tuple[object, ...]]) -> None:
    rows = covering(factors)
    assert rows == covering(factors)
    sizes = sorted((len(values) for values in factors.values()), reverse=True)
    assert sizes[0] * sizes[1] <= len(rows) <= 1.2 * sizes[0] * sizes[1] + 2


def test_covering_adds_nothing_where_two_factors_have_all_rows() -> None:
    factors = {"a": (1, 2), "b": ("x", "y", "z")}
    assert sorted(map(repr, covering(factors))) == sorted(map(repr, every(factors)))


def test_every_row_is_there_once() -> None:
    rows = every(SMALL)
    assert len(rows) == len({tuple(row.values()) for row in rows}) == math.prod(map(len, SMALL.values()))
