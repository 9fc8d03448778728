"""The streams to a run's executors: what each is sent, numbered, and one at a time where strict.

A stream that breaks costs nothing: the same executor opens another, and is sent again what it has not done.
"""

import asyncio
import time
from collections.abc import Sequence

from takt.rpc.errors import TaktError
from takt.v1 import commands_pb2
from takt.v1 import workers_pb2 as pb

from coordinator.clock import clock_name
from coordinator.feed import Feed
from coordinator.receipts import Receipts

Outbox = asyncio.Queue[pb.ExecuteResponse | None]
"""What an executor is sent; None ends its stream."""


class StreamTakenError(TaktError):
    """A worker's place in the run is taken."""


class Streams:
    """One stream a worker at a time; each worker has one process in a run."""

    def __init__(self, num_before: Sequence[int], *, strict: bool, receipts: Receipts) -> None:
        """Make place for as many workers as there are numbers in ``num_before``: commands that each has had before."""
        num_workers = len(num_before)
        self._feeds = [Feed(strict=strict, num_before=count) for count in num_before]
        self._receipts = receipts
        self._outboxes: list[Outbox | None] = [None] * num_workers
        self._pids: list[int | None] = [None] * num_workers
        self._closed = False
        self._clock_name = clock_name()
        self._unanswered: dict[int, tuple[float, float]] = {}
        """Time that a worker sent, and when it came."""

    def open(self, worker: int, *, pid: int, done_seq: int) -> Outbox:
        """Return what a worker is to be sent from now on, all first that it was sent and has not done.

        Args:
            worker: whose stream it is; one that it had before is ended.
            pid: of its process.
            done_seq: number of the last command that it has done.

        Raises:
            StreamTakenError: another process is that worker, or there is no such worker.
        """
        if not 0 <= worker < len(self._outboxes):
            raise StreamTakenError(f"there is no worker {worker} in this attempt, it has {len(self._outboxes)}")
        holder = self._pids[worker]
        if holder is not None and holder != pid:
            raise StreamTakenError(f"worker {worker} is process {holder} already; process {pid} is not needed")
        self._pids[worker] = pid
        self._end(worker)
        outbox = self._outboxes[worker] = Outbox()
        if self._closed:
            self._end(worker)
        for message in self._feeds[worker].resume(done_seq):
            self._send(worker, pb.ExecuteResponse(commands=message))
        return outbox

    def ended(self, worker: int, outbox: Outbox) -> bool:
        """A stream has ended; return whether it was the worker's present one, so that it has none now."""
        if self._outboxes[worker] is not outbox:
            return False
        self._outboxes[worker] = None
        return True

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
        """A worker has done all commands up to one; it gets the next one that was kept."""
        for message in self._feeds[worker].done(seq):
            self._send(worker, pb.ExecuteResponse(commands=message))

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for worker in range(len(self._outboxes)):
            self._end(worker)

    def _end(self, worker: int) -> None:
        outbox = self._outboxes[worker]
        if outbox is not None:
            outbox.put_nowait(None)

    def _send(self, worker: int, message: pb.ExecuteResponse) -> None:
        outbox = self._outboxes[worker]
        if outbox is None:
            return
        message.acknowledged = self._receipts.acknowledged(worker)
        if (unanswered := self._unanswered.pop(worker, None)) is not None:
            echo = message.clock_echo
            echo.sent, echo.received = unanswered
            echo.answered, echo.name = time.monotonic(), self._clock_name
        outbox.put_nowait(message)
