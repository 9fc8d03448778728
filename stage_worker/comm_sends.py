"""Sends that are on their way: a thread that waits for each and then lets go of its buffer."""

import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

import torch

from stage_worker.engine.transport import Departure, PeerLostError


class Work(Protocol):
    """A transfer that torch has begun."""

    def wait(self) -> bool:
        """Block until it is done, outside the interpreter's lock; raise RuntimeError where it cannot be."""


@dataclass(frozen=True, slots=True)
class _Send:
    # Work and buffer belong together: Gloo forgets a send whose handle or tensor is dropped.
    work: Work
    buffer: torch.Tensor
    worker: int
    departure: Departure


class PendingSends:
    """Keeps every send until it has left. Gloo tells so by ``wait`` only, hence the thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Send | None] = SimpleQueue()
        self._changed = threading.Condition()
        self._outstanding = 0
        self._error: PeerLostError | None = None
        self._thread = threading.Thread(target=self._reap, name="takt-sends", daemon=True)
        self._thread.start()

    def add(self, work: Work, buffer: torch.Tensor, *, worker: int) -> Departure:
        """Take charge of a send to ``worker``; raise the PeerLostError of an earlier one."""
        departure = Departure()
        with self._changed:
            self._raise_error()
            self._outstanding += 1
        self._queue.put(_Send(work, buffer, worker, departure))
        return departure

    def flush(self) -> None:
        """Wait until all have left; raise PeerLostError where one could not."""
        with self._changed:
            self._changed.wait_for(lambda: self._outstanding == 0 or self._error is not None)
            self._raise_error()

    def close(self) -> None:
        """End the thread once what it waits for is done or broken."""
        self._queue.put(None)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _reap(self) -> None:
        while (send := self._queue.get()) is not None:
            error = None
            try:
                send.work.wait()
                send.departure.left = time.monotonic()
            except RuntimeError as cause:
                error = lost(send.worker, cause)
            del send  # the buffer goes before the next wait, which may be long
            with self._changed:
                self._outstanding -= 1
                self._error = self._error or error
                self._changed.notify_all()


def lost(worker: int, cause: RuntimeError) -> PeerLostError:
    """Return what torch's ``cause`` means for the transfer with ``worker``."""
    text = str(cause)
    if "Timed out" in text:
        return PeerLostError(f"worker {worker} did not answer within the transport's limit")
    if "closed" in text or "reset" in text:
        return PeerLostError(f"worker {worker} closed its connection")
    return PeerLostError(f"worker {worker} is lost: {text}")
