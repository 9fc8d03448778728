"""The streams to a run's executors: what each is sent, numbered, and one at a time where strict."""

import asyncio
import time

from takt.rpc.errors import TaktError
from takt.v1 import commands_pb2
from takt.v1 import workers_pb2 as pb

from coordinator.clock import clock_name
from coordinator.feed import Feed

Outbox = asyncio.Queue[pb.ExecuteResponse | None]
"""What an executor is sent; None ends its stream."""


class StreamTakenError(TaktError):
    """A worker's place in the run is taken."""


class Streams:
    """One stream a worker; each worker has one in a run, for one process."""

    def __init__(self, num_workers: int, *, strict: bool) -> None:
        self._feeds = [Feed(strict=strict) for _ in range(num_workers)]
        self._outboxes: list[Outbox | None] = [None] * num_workers
        self._clock_name = clock_name()
        self._unanswered: dict[int, tuple[float, float]] = {}
        """Time that a worker sent, and when it came."""

    def open(self, worker: int) -> Outbox:
        """Return what a worker is to be sent from now on.

        Raises:
            StreamTakenError: the worker has a stream, or there is no such worker.
        """
        if not 0 <= worker < len(self._outboxes):
            raise StreamTakenError(f"there is no worker {worker} in this attempt, it has {len(self._outboxes)}")
        if self._outboxes[worker] is not None:
            raise StreamTakenError(f"worker {worker} has a stream already; an executor opens one and no second")
        outbox = self._outboxes[worker] = Outbox()
        return outbox

    def note_time(self, worker: int, sent: float) -> None:
        """A worker sent the time of its clock; it is echoed with the next message to it."""
        self._unanswered[worker] = sent, time.monotonic()

    def meet(self, workers: tuple[int, ...], address: str) -> None:
        """Tell workers where the groups meet."""
        for worker in workers:
            self._send(worker, pb.ExecuteResponse(rendezvous=pb.Rendezvous(address=address)))

    def issue(self, worker: int, commands: commands_pb2.StepCommands) -> None:
        """Send a worker its next commands, or keep them until it has done those before."""
        for message in self._feeds[worker].offer(commands):
            self._send(worker, pb.ExecuteResponse(commands=message))

    def done(self, worker: int, seq: int) -> None:
        """A worker has done a command; it gets the next one that was kept."""
        for message in self._feeds[worker].done(seq):
            self._send(worker, pb.ExecuteResponse(commands=message))

    def close(self) -> None:
        """End all streams."""
        for outbox in self._outboxes:
            if outbox is not None:
                outbox.put_nowait(None)

    def _send(self, worker: int, message: pb.ExecuteResponse) -> None:
        outbox = self._outboxes[worker]
        if outbox is None:
            return
        if (unanswered := self._unanswered.pop(worker, None)) is not None:
            echo = message.clock_echo
            echo.sent, echo.received = unanswered
            echo.answered, echo.name = time.monotonic(), self._clock_name
        outbox.put_nowait(message)
