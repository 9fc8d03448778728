"""Shapes of a run's steps, fetched from the data service before they are needed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from takt.v1 import data_pb2 as pb

from coordinator.data_client import DataError

Fetch = Callable[[int, int], Coroutine[Any, Any, list[pb.StepDescription]]]
"""From the first step and a count to the descriptions."""


class Lookahead:
    """Step descriptions in order, fetched before they are needed."""

    def __init__(self, fetch: Fetch, *, first: int = 1, last: int, ahead: int) -> None:
        """Start to fetch, from step ``first`` to ``last``, at most ``ahead`` steps before they are taken."""
        self._fetch = fetch
        self._first, self._last = first, last
        self._ahead = ahead
        self._ready: asyncio.Queue[pb.StepDescription] = asyncio.Queue(maxsize=ahead)
        self._pump = asyncio.create_task(self._fill())
        # A run may end before it takes what failed; then nobody is to be told.
        self._pump.add_done_callback(lambda pump: pump.cancelled() or pump.exception())

    async def take(self, step: int) -> pb.StepDescription:
        """Return the next description, which must be that of ``step``.

        Raises:
            DataError: the service refuses, stays away, or describes something else.
        """
        taken = asyncio.create_task(self._ready.get())
        await asyncio.wait({taken, self._pump}, return_when=asyncio.FIRST_COMPLETED)
        if not taken.done() and self._ready.empty():
            taken.cancel()
            self._pump.result()  # raises what ended it
            raise DataError(f"the data service describes no step {step}; {self._last} were planned")
        description = await taken
        if description.step != step:
            raise DataError(f"the data service described step {description.step} where step {step} comes next")
        return description

    def close(self) -> None:
        """Stop fetching."""
        self._pump.cancel()

    async def _fill(self) -> None:
        first = self._first
        while first <= self._last:
            steps = await self._fetch(first, min(self._ahead, self._last - first + 1))
            if not steps:
                return
            for step in steps:
                await self._ready.put(step)
            first += len(steps)
