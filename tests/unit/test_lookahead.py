import asyncio

import pytest
from takt.v1 import data_pb2

from coordinator.data_client import DataError
from coordinator.lookahead import Lookahead


class Source:
    """Describes ``num_steps`` steps and remembers what it was asked for."""

    def __init__(self, num_steps: int, *, shift: int = 0) -> None:
        self._num_steps = num_steps
        self._shift = shift
        self.asked: list[tuple[int, int]] = []

    async def fetch(self, first: int, count: int) -> list[data_pb2.StepDescription]:
        self.asked.append((first, count))
        steps = range(first, min(first + count, self._num_steps + 1))
        return [data_pb2.StepDescription(step=step + self._shift) for step in steps]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_lookahead_fetches_a_few_steps_before_they_are_taken() -> None:
    source = Source(9)
    ahead = Lookahead(source.fetch, last=9, ahead=4)
    await settle()
    # Four are ready and four more at hand; the ninth is left for later.
    assert source.asked == [(1, 4), (5, 4)]
    assert [(await ahead.take(step)).step for step in range(1, 10)] == list(range(1, 10))
    assert source.asked == [(1, 4), (5, 4), (9, 1)]


async def test_lookahead_service_ends_early_says_which_step_is_missing() -> None:
    ahead = Lookahead(Source(2).fetch, last=5, ahead=4)
    await ahead.take(1)
    await ahead.take(2)
    with pytest.raises(DataError, match="describes no step 3; 5 were planned"):
        await ahead.take(3)


async def test_lookahead_other_step_is_refused() -> None:
    ahead = Lookahead(Source(5, shift=1).fetch, last=5, ahead=2)
    with pytest.raises(DataError, match="described step 2 where step 1 comes next"):
        await ahead.take(1)
    ahead.close()


async def test_lookahead_failed_fetch_is_raised_where_the_step_is_taken() -> None:
    async def fetch(first: int, count: int) -> list[data_pb2.StepDescription]:
        raise DataError("gone for good")

    with pytest.raises(DataError, match="gone for good"):
        await Lookahead(fetch, last=5, ahead=2).take(1)
