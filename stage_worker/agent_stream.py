"""The agent's stream to the coordinator: one call, from hello to its end."""

import asyncio
import contextlib
from collections.abc import Callable

import grpc.aio
import structlog
from takt.rpc.client import aio_channel
from takt.v1 import workers_pb2 as pb
from takt.v1 import workers_pb2_grpc as pb_grpc

_WELCOME_SECONDS = 10.0
_GOODBYE_SECONDS = 2.0

log = structlog.get_logger()


class StreamLostError(Exception):
    """The stream could not be opened, or has ended; the text says why."""


class CoordinatorStream:
    """What one agent says to, and hears from, one life of the coordinator."""

    def __init__(self, address: str, *, hello: pb.AgentHello, on_message: Callable[[pb.AttendResponse], None]) -> None:
        self._address = address
        self._on_message = on_message
        self.welcomed = False
        """Whether the coordinator has taken the slot on."""
        self.left = False
        """Whether the agent has said goodbye."""
        self._ended = asyncio.Event()
        self._outbox: asyncio.Queue[pb.AttendRequest] = asyncio.Queue()
        self._outbox.put_nowait(pb.AttendRequest(hello=hello))

    def say(self, message: pb.AttendRequest) -> None:
        """Queue a message; it never waits, whatever the coordinator does."""
        self._outbox.put_nowait(message)

    async def leave(self) -> None:
        """Say goodbye, and wait until the coordinator has heard everything and ended the stream, or does not answer."""
        self.left = True
        self.say(pb.AttendRequest(leaving=pb.AgentLeaving()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._ended.wait()

    async def attend(self) -> None:
        """Dial, and deliver messages until the stream ends; never returns.

        Raises:
            StreamLostError: in the end, always.
        """
        async with aio_channel(self._address) as channel:
            call: grpc.aio.StreamStreamCall[pb.AttendRequest, pb.AttendResponse] = pb_grpc.WorkerServiceStub(
                channel
            ).Attend()
            sender = asyncio.create_task(self._send(call))
            try:
                async with asyncio.timeout(_WELCOME_SECONDS):  # wait_for can swallow a cancellation
                    first = await call.read()
                if isinstance(first, pb.AttendResponse) and first.HasField("welcome"):
                    self.welcomed = True
                    self._on_message(first)
                    log.info("coordinator found", address=self._address, lease_seconds=first.welcome.lease_seconds)
                    while isinstance(message := await call.read(), pb.AttendResponse):
                        self._on_message(message)
                raise StreamLostError("the coordinator ended the stream")
            except TimeoutError as error:
                raise StreamLostError(f"no welcome within {_WELCOME_SECONDS:g} s") from error
            except grpc.aio.AioRpcError as error:
                raise StreamLostError(f"{error.code().name}: {error.details()}") from error
            finally:
                sender.cancel()
                call.cancel()
                self._ended.set()

    async def _send(self, call: grpc.aio.StreamStreamCall[pb.AttendRequest, pb.AttendResponse]) -> None:
        while True:
            message = await self._outbox.get()
            try:
                await call.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the reader sees the same end, with its reason
            finally:
                self._outbox.task_done()
