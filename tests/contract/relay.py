"""Stands between executors and their coordinator, and cuts a stream at a message that a test chooses."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from takt.rpc.client import aio_channel
from takt.v1 import workers_pb2 as pb
from takt.v1 import workers_pb2_grpc as pb_grpc

_PASS_SECONDS = 0.05
"""What a message needs to get through before its stream is cut."""


@dataclass(frozen=True)
class Cut:
    """Where a stream is cut, once."""

    worker: int
    kind: str
    """Kind of the message, for instance commands, or step."""
    nth: int = 1
    """Which message of that kind, from 1."""
    passes: bool = False
    """Whether the message still gets through."""

    def __str__(self) -> str:
        return f"worker {self.worker}: {'after' if self.passes else 'instead of'} {self.kind} {self.nth}"


class Relay(pb_grpc.WorkerServiceServicer):
    """Passes the ``Execute`` streams of one job on, both ways, each message as often as ``copies`` says."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._counts: Counter[tuple[int, str]] = Counter()
        self.cut: Cut | None = None
        """What is to be cut; None once it was."""
        self.num_streams = 0
        self.copies = 1

    def begin(self, cut: Cut | None, *, copies: int = 1) -> None:
        """Prepare for the next job."""
        self._counts.clear()
        self.cut, self.copies, self.num_streams = cut, copies, 0

    async def Execute(  # noqa: N802  gRPC's name
        self, request_iterator: AsyncIterator[pb.ExecuteRequest], context: Any
    ) -> AsyncIterator[pb.ExecuteResponse]:
        self.num_streams += 1
        hello = await anext(request_iterator)
        worker, broken = hello.hello.worker, asyncio.Event()
        if self._is_cut(worker, "hello", passes=False):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        async with aio_channel(self._address) as channel:
            call = pb_grpc.WorkerServiceStub(channel).Execute()
            await call.write(hello)
            up = asyncio.create_task(self._pass_up(worker, request_iterator, call, broken))
            try:
                await call.initial_metadata()
                await context.send_initial_metadata(())
                if self._is_cut(worker, "hello", passes=True):
                    broken.set()
                async for message in self._down(worker, call, broken):
                    yield message
                code, details = (grpc.StatusCode.UNAVAILABLE, "cut") if broken.is_set() else await _end(call)
            finally:
                up.cancel()
                call.cancel()
        if code is not grpc.StatusCode.OK:
            await context.abort(code, details)

    async def _pass_up(
        self, worker: int, requests: AsyncIterator[pb.ExecuteRequest], call: Any, broken: asyncio.Event
    ) -> None:
        async for message in requests:
            kind = message.WhichOneof("message") or ""
            self._counts[worker, kind] += 1
            if self._is_cut(worker, kind, passes=False):
                broken.set()
                return
            for _ in range(self.copies):
                await call.write(message)
            if self._is_cut(worker, kind, passes=True):
                await asyncio.sleep(_PASS_SECONDS)
                broken.set()
                return
        await call.done_writing()

    async def _down(self, worker: int, call: Any, broken: asyncio.Event) -> AsyncIterator[pb.ExecuteResponse]:
        breaking = asyncio.create_task(broken.wait())
        try:
            while True:
                reading = asyncio.create_task(call.read())
                await asyncio.wait({reading, breaking}, return_when=asyncio.FIRST_COMPLETED)
                if broken.is_set():
                    reading.cancel()
                    return
                try:
                    message = reading.result()
                except grpc.aio.AioRpcError:
                    return
                if not isinstance(message, pb.ExecuteResponse):
                    return
                kind = message.WhichOneof("message") or ""
                self._counts[worker, kind] += 1
                if self._is_cut(worker, kind, passes=False):
                    broken.set()
                    return
                for _ in range(self.copies):
                    yield message
                if self._is_cut(worker, kind, passes=True):
                    broken.set()
                    return
        finally:
            breaking.cancel()

    def _is_cut(self, worker: int, kind: str, *, passes: bool) -> bool:
        count = 1 if kind == "hello" else self._counts[worker, kind]
        if self.cut != Cut(worker, kind, count, passes):
            return False
        self.cut = None
        return True


async def _end(call: Any) -> tuple[grpc.StatusCode, str]:
    return await call.code(), await call.details() or ""
