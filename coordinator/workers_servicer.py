"""The gRPC face towards stage workers: one stream an agent, one an executor."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from takt.rpc.errors import StatusTable, TaktError
from takt.v1 import workers_pb2 as pb
from takt.v1 import workers_pb2_grpc as pb_grpc

from coordinator.attendance import Attendance, NotYetError, StaleAttemptError
from coordinator.membership import SlotTakenError
from coordinator.streams import StreamTakenError

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["WorkerService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request")
Response = TypeVar("Response")


class HelloError(TaktError):
    """A stream that does not begin with hello, or with one that says too little."""


STATUS: StatusTable = {
    HelloError: grpc.StatusCode.INVALID_ARGUMENT,
    DecodeError: grpc.StatusCode.INVALID_ARGUMENT,  # bytes that are no message
    SlotTakenError: grpc.StatusCode.ALREADY_EXISTS,
    StreamTakenError: grpc.StatusCode.ALREADY_EXISTS,
    NotYetError: grpc.StatusCode.UNAVAILABLE,
    StaleAttemptError: grpc.StatusCode.FAILED_PRECONDITION,
}


class WorkerServicer(pb_grpc.WorkerServiceServicer):
    """Passes on what workers say, and sends what they are to hear."""

    def __init__(self, attendance: Attendance) -> None:
        self._attendance = attendance

    async def Attend(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.AttendRequest], context: Context
    ) -> AsyncIterator[pb.AttendResponse]:
        """Serve one agent until its stream ends."""
        first = await anext(request_iterator, None)
        if first is None or not first.HasField("hello"):
            raise HelloError("the first message of an agent must be hello")
        if not (first.hello.agent and first.hello.host and first.hello.device):
            raise HelloError("the hello of an agent must name agent, host and device")
        agent = first.hello.agent
        outbox = self._attendance.joined(first.hello)
        lost, reason = True, "its stream broke"

        def hear(message: pb.AttendRequest) -> None:
            nonlocal lost, reason
            if not self._attendance.attends(agent, outbox):
                return
            if message.HasField("leaving"):
                lost, reason = False, "it left"
                outbox.put_nowait(None)
            else:
                self._attendance.said(agent, message)

        reader = _Reader(request_iterator, hear, outbox)
        try:
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            reader.stop()
            self._attendance.gone(agent, outbox, reason, lost=lost)

    async def Execute(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.ExecuteRequest], context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        """Serve one executor until its stream ends."""
        first = await anext(request_iterator, None)
        if first is None or not first.HasField("hello"):
            raise HelloError("the first message of an executor must be hello")
        worker = first.hello.worker
        runner = self._attendance.run_of(first.hello)
        outbox = runner.hearing.connect(first.hello)
        await context.send_initial_metadata(())  # an executor without work to do hears at once that it was heard
        reader = _Reader(request_iterator, lambda message: runner.hearing.told(worker, message), outbox)
        try:
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            reader.stop()
            runner.hearing.disconnected(worker, outbox)


class _Reader:
    """Reads a stream beside the writing of its answers; at its end it ends the outbox too."""

    def __init__(
        self,
        requests: AsyncIterator[Request],
        on_message: Callable[[Request], None],
        outbox: asyncio.Queue[Response | None],
    ) -> None:
        self._task = asyncio.create_task(self._read(requests, on_message, outbox))

    def stop(self) -> None:
        """Read no more."""
        self._task.cancel()

    async def _read(
        self,
        requests: AsyncIterator[Request],
        on_message: Callable[[Request], None],
        outbox: asyncio.Queue[Response | None],
    ) -> None:
        try:
            async for message in requests:
                on_message(message)
        finally:
            outbox.put_nowait(None)
