"""An executor's stream to the coordinator: one thread reads, whoever has something to say queues it."""

import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import grpc
from takt.v1 import workers_pb2 as pb
from takt.v1 import workers_pb2_grpc as pb_grpc

from stage_worker.clock import ClockOffset
from stage_worker.decode import MessageError, decode_commands
from stage_worker.engine.commands import StepCommands
from stage_worker.fence import Fence, FenceError

_CLOSE_SECONDS = 5.0


class CoordinatorLostError(RuntimeError):
    """The stream to the coordinator has ended; there is nobody to tell it to."""


class CoordinatorLink:
    """What an executor says to, and hears from, the coordinator. Messages come in the order they were sent."""

    def __init__(self, channel: grpc.Channel, hello: pb.ExecutorHello, *, clock: ClockOffset) -> None:
        """Open the stream to the coordinator behind ``channel`` and say hello; ``clock`` is told of every echo."""
        self._clock = clock
        self._fence = Fence(hello.job, hello.attempt)
        self._on_commands: Callable[[StepCommands], None] | None = None
        self._outbox: SimpleQueue[pb.ExecuteRequest | None] = SimpleQueue()
        self._inbox: SimpleQueue[str | StepCommands | Exception] = SimpleQueue()
        self.say(pb.ExecuteRequest(hello=hello))
        self._call = pb_grpc.WorkerServiceStub(channel).Execute(self._outgoing())
        self._reader = threading.Thread(target=self._read, name="coordinator-link", daemon=True)
        self._reader.start()

    def say(self, message: pb.ExecuteRequest) -> None:
        """Queue a message; never waits."""
        self._outbox.put(message)

    def notify(self, on_commands: Callable[[StepCommands], None]) -> None:
        """Tell of commands as soon as they arrive, from the reading thread. Call it before ``ready`` is said."""
        self._on_commands = on_commands

    def rendezvous(self) -> str:
        """Wait for the address of the store in which the workers meet.

        Raises:
            CoordinatorLostError: the stream ended before.
            MessageError: commands came first.
        """
        item = self._take()
        if not isinstance(item, str):
            raise MessageError("commands came before the rendezvous")
        return item

    def commands(self) -> StepCommands:
        """Wait for the next commands.

        Raises:
            CoordinatorLostError: the stream ended.
            FenceError, MessageError: what came cannot be obeyed.
        """
        item = self._take()
        if isinstance(item, str):
            raise MessageError(f"a second rendezvous came: {item}")
        return item

    def close(self) -> None:
        """Let everything that was said arrive, then end the stream."""
        self._outbox.put(None)
        self._reader.join(_CLOSE_SECONDS)
        self._call.cancel()

    def _take(self) -> str | StepCommands:
        item = self._inbox.get()
        if isinstance(item, Exception):
            raise item
        return item

    def _outgoing(self) -> Iterator[pb.ExecuteRequest]:
        return iter(self._outbox.get, None)

    def _read(self) -> None:
        obeys = True
        try:
            for message in self._call:
                self._compare_clocks(message)
                if not obeys:
                    continue  # the stream stays open, for the failure that is about to be told
                try:
                    self._hear(message)
                except (FenceError, MessageError) as error:
                    obeys = False
                    self._inbox.put(error)
            reason = "the coordinator ended the stream"
        except grpc.RpcError as error:
            reason = f"the stream to the coordinator broke: {error.code().name}: {error.details()}"
        self._inbox.put(CoordinatorLostError(reason))

    def _compare_clocks(self, message: pb.ExecuteResponse) -> None:
        if message.HasField("clock_echo"):
            echo = message.clock_echo
            self._clock.add(
                sent=echo.sent,
                received=echo.received,
                answered=echo.answered,
                returned=time.monotonic(),
                name=echo.name,
            )

    def _hear(self, message: pb.ExecuteResponse) -> None:
        match message.WhichOneof("message"):
            case "rendezvous":
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
