"""An executor's tie to the coordinator: it outlives streams that break, and nothing is lost or done twice.

One thread dials and reads; whoever has something to say queues it. What may not be lost is numbered, kept until the
coordinator has acknowledged it, and said again after every hello.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

import grpc
from takt.v1 import workers_pb2 as pb
from takt.v1 import workers_pb2_grpc as pb_grpc

from stage_worker.clock import ClockOffset
from stage_worker.decode import MessageError, decode_commands
from stage_worker.engine.commands import StepCommands
from stage_worker.fence import Fence, FenceError

REDIAL_SECONDS = 0.5
_CLOSE_SECONDS = 5.0
_REFUSALS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ALREADY_EXISTS)
"""The attempt is over, or another process has this worker's place: dialling again changes nothing."""

_Outbox = SimpleQueue[pb.ExecuteRequest | None]


class _Call(Protocol):
    """A stream, as gRPC's own private class has it."""

    def initial_metadata(self) -> object: ...
    def is_active(self) -> bool: ...
    def cancel(self) -> bool: ...
    def __iter__(self) -> Iterator[pb.ExecuteResponse]: ...


class CoordinatorLostError(RuntimeError):
    """No stream to the coordinator is to be had any more; there is nobody to tell it to."""


class CoordinatorLink:
    """What an executor says to, and hears from, the coordinator. Messages come in the order they were sent."""

    def __init__(
        self, channel: grpc.Channel, hello: pb.ExecutorHello, *, clock: ClockOffset, limit_seconds: float
    ) -> None:
        """Begin to dial the coordinator.

        Args:
            channel: to the coordinator.
            hello: said first on every stream, with the time and what is done by then.
            clock: told of every echo.
            limit_seconds: how long a coordinator that does not answer is dialled before it counts as lost.
        """
        self._stub = pb_grpc.WorkerServiceStub(channel)
        self._hello = hello
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._fence = Fence(hello.job, hello.attempt)
        self._obeys = True
        self._has_met = False
        self._on_commands: Callable[[StepCommands], None] | None = None
        self._inbox: SimpleQueue[str | StepCommands | Exception] = SimpleQueue()
        self._lock = threading.Lock()
        """Guards what follows."""
        self._standing: list[pb.ExecuteRequest] = []
        """Said again after every hello, first."""
        self._kept: deque[pb.ExecuteRequest] = deque()
        """Numbered and not acknowledged; said again after every hello."""
        self._num_said = 0
        self._done_seq = 0
        self._outbox: _Outbox | None = None
        """Of the stream that is open."""
        self._call: _Call | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._attend, name="coordinator-link", daemon=True)
        self._thread.start()

    def say(self, message: pb.ExecuteRequest) -> None:
        """Queue a message; never waits."""
        with self._lock:
            match message.WhichOneof("message"):
                case "store_opened" | "ready":
                    self._standing.append(message)
                case "done":
                    self._done_seq = message.done.seq  # the next hello tells it
                case _:
                    self._num_said += 1
                    message.number = self._num_said
                    self._kept.append(message)
                    self._done_seq = max(self._done_seq, message.step.last_seq)
            if self._outbox is not None:
                self._outbox.put(message)

    def notify(self, on_commands: Callable[[StepCommands], None]) -> None:
        """Tell of commands as soon as they arrive, from the reading thread. Call it before ``ready`` is said."""
        self._on_commands = on_commands

    def rendezvous(self) -> str:
        """Wait for the address of the store in which the workers meet.

        Raises:
            CoordinatorLostError: the coordinator was lost before.
            MessageError: commands came first.
        """
        item = self._take()
        if not isinstance(item, str):
            raise MessageError("commands came before the rendezvous")
        return item

    def commands(self) -> StepCommands:
        """Wait for the next commands.

        Raises:
            CoordinatorLostError: the coordinator was lost.
            FenceError, MessageError: what came cannot be obeyed.
        """
        item = self._take()
        assert not isinstance(item, str), "only the first rendezvous is passed on"
        return item

    def close(self) -> None:
        """Let everything that was said arrive, on a new stream where this one breaks, then end it."""
        with self._lock:
            self._closing = True
            if self._outbox is not None:
                self._outbox.put(None)
        self._thread.join(self._limit_seconds + _CLOSE_SECONDS)
        with self._lock:
            if self._call is not None:
                self._call.cancel()

    def _take(self) -> str | StepCommands:
        item = self._inbox.get()
        if isinstance(item, Exception):
            raise item
        return item

    def _attend(self) -> None:
        """Keep a stream open until everything is said and heard, or the coordinator is lost."""
        answered_at = time.monotonic()
        while True:
            call, outbox = self._dial()
            refused, reason = False, "the coordinator ended the stream"
            is_over, answered = False, False
            try:
                call.initial_metadata()  # waits until the stream was taken on, or has failed
                answered = call.is_active()
                for message in call:
                    self._hear(message)
                answered, is_over = True, self._closing
            except grpc.RpcError as error:
                refused = error.code() in _REFUSALS
                reason = f"the stream to the coordinator broke: {error.code().name}: {error.details()}"
            self._hang_up(outbox)
            now = time.monotonic()
            answered_at = now if answered else answered_at
            if is_over or refused or now - answered_at > self._limit_seconds:
                self._inbox.put(CoordinatorLostError(reason))
                return
            time.sleep(REDIAL_SECONDS)

    def _dial(self) -> tuple[_Call, _Outbox]:
        with self._lock:
            outbox: _Outbox = SimpleQueue()
            self._hello.sent, self._hello.done_seq = time.monotonic(), self._done_seq
            outbox.put(pb.ExecuteRequest(hello=self._hello))
            for message in (*self._standing, *self._kept):
                outbox.put(message)
            if self._closing:
                outbox.put(None)
            self._outbox = outbox
            self._call = self._stub.Execute(iter(outbox.get, None))
            return self._call, outbox

    def _hang_up(self, outbox: _Outbox) -> None:
        with self._lock:
            self._outbox = None
        outbox.put(None)  # the thread of gRPC that waits for the next message ends

    def _hear(self, message: pb.ExecuteResponse) -> None:
        if message.HasField("clock_echo"):
            echo = message.clock_echo
            self._clock.add(
                sent=echo.sent,
                received=echo.received,
                answered=echo.answered,
                returned=time.monotonic(),
                name=echo.name,
            )
        with self._lock:
            while self._kept and self._kept[0].number <= message.acknowledged:
                self._kept.popleft()
        if not self._obeys:
            return  # the stream stays open, for the failure that is about to be told
        try:
            self._take_in(message)
        except (FenceError, MessageError) as error:
            self._obeys = False
            self._inbox.put(error)

    def _take_in(self, message: pb.ExecuteResponse) -> None:
        match message.WhichOneof("message"):
            case "rendezvous":
                if not self._has_met:
                    self._has_met = True
                    self._inbox.put(message.rendezvous.address)
            case "commands":
                admitted = self._fence.admit(message.commands)
                if admitted is not None:
                    commands = decode_commands(admitted)
                    if self._on_commands is not None:
                        self._on_commands(commands)
                    self._inbox.put(commands)
            case other:
                raise MessageError(f"a message of kind {other} is not known to this worker")
