"""Writes the timeline of a run to its folder: now and then while it goes on, and at its end."""

import asyncio
import time

import structlog

from coordinator.files import JobFiles
from coordinator.trace.chrome import to_chrome
from coordinator.trace.collected import Collected, StepTimes

_SHORTEST_SECONDS = 30.0
"""Between two writes while the run goes on."""
_MOST_SHARE = 0.01
"""Of the time, that is spent on writing while the run goes on."""

_log = structlog.get_logger()


class Tracing:
    """The timeline of one attempt. A trace is worth less than the run: where it cannot be written, the run goes on."""

    def __init__(self, collected: Collected, *, job: str, schedule: str, files: JobFiles) -> None:
        self._collected = collected
        self._job = job
        self._schedule = schedule
        self._files = files
        self._zero = time.monotonic()
        self._origin = time.time()
        self._due = self._zero + _SHORTEST_SECONDS
        self._writing: asyncio.Task[None] | None = None

    def add(self, worker: int, times: StepTimes) -> None:
        """Take a step of one worker."""
        self._collected.add(worker, times)

    def write_if_due(self) -> None:
        """Begin to write what there is, unless that was done a short while ago."""
        if time.monotonic() >= self._due and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write())

    async def finish(self) -> None:
        """Write all of it; return when it is on disk."""
        if self._writing is not None:
            await self._writing
        await self._write()

    async def _write(self) -> None:
        began = time.monotonic()
        trace = self._collected.trace(job=self._job, schedule=self._schedule, origin=self._origin, zero=self._zero)
        if trace is None:
            return
        try:
            await asyncio.to_thread(self._files.write_trace, to_chrome(trace, None))
        except OSError as error:
            _log.warning("the timeline of the run could not be written", job=self._job, error=str(error))
        now = time.monotonic()
        self._due = now + max(_SHORTEST_SECONDS, (now - began) / _MOST_SHARE)
