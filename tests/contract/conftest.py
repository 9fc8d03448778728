"""A tiny service for tests of the wire: its requests say what it should do."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry
from takt.rpc.errors import StatusTable, TaktError
from takt.rpc.metrics import rpc_counter
from takt.rpc.server import RunningServer, serve

SERVICE = "test.EchoService"


class RefusedError(TaktError):
    """An error that the service's table lists."""


class RefusedTwiceError(RefusedError):
    """An error whose ancestor the service's table lists."""


class EchoHandlers(grpc.GenericRpcHandler):
    """Handlers of bytes: the first word of a request says what to do; the request is the answer where nothing is."""

    def __init__(self) -> None:
        self.calls = 0

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        match handler_call_details.method.rpartition("/")[2]:
            case "Unary":
                return grpc.unary_unary_rpc_method_handler(self._unary)
            case "Generate":
                return grpc.unary_stream_rpc_method_handler(self._generate)
            case "Converse":
                return grpc.stream_stream_rpc_method_handler(self._converse)
            case "ConverseByWrite":
                return grpc.stream_stream_rpc_method_handler(self._converse_by_write)
            case "Collect":
                return grpc.stream_unary_rpc_method_handler(self._collect)
        return None

    async def _unary(self, request: bytes, context: Any) -> bytes:
        self.calls += 1
        word, _, text = request.partition(b" ")
        match word:
            case b"refuse":
                raise RefusedError(text.decode())
            case b"refuse-twice":
                raise RefusedTwiceError(text.decode())
            case b"crash":
                raise ValueError(text.decode())
            case b"abort":
                await context.abort(grpc.StatusCode.NOT_FOUND, text.decode())
            case b"hang":
                await asyncio.Event().wait()
            case b"unavailable-once" if self.calls == 1:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return request

    async def _generate(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        yield await self._unary(request, context)

    async def _converse(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await self._unary(request, context)

    async def _converse_by_write(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await context.write(await self._unary(request, context))

    async def _collect(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([await self._unary(request, context) async for request in requests])


@pytest.fixture
def echo_handlers() -> EchoHandlers:
    """Return the handlers of the server in ``echo``; ``calls`` counts what reached them."""
    return EchoHandlers()


@pytest.fixture
def echo_registry() -> CollectorRegistry:
    """Return the registry that the calls of ``echo`` are counted in."""
    return CollectorRegistry()


@pytest.fixture
async def echo(echo_handlers: EchoHandlers, echo_registry: CollectorRegistry) -> AsyncIterator[RunningServer]:
    """Yield a running server of the echo service on a free port."""

    def add(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((echo_handlers,))

    table: StatusTable = {RefusedError: grpc.StatusCode.FAILED_PRECONDITION}
    server = await serve(
        "127.0.0.1:0", add=add, services=[SERVICE], status=table, on_handled=rpc_counter(echo_registry)
    )
    yield server
    await server.stop(0)
