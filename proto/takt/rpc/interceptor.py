"""What happens around every handler: deadlines demanded, errors translated, endings counted."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio
import structlog

from takt.rpc.errors import StatusTable, status_of
from takt.rpc.limits import MAX_STATUS_BYTES

OnHandled = Callable[[str, grpc.StatusCode], None]
"""Told the full method name and the code of each RPC that ended."""

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"  # generic for the checker only

_log = structlog.get_logger()


class EdgeInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server.

    A unary call without a deadline is refused. An error that ``table`` lists reaches the caller with its text;
    any other reaches only the log, and the caller learns where to look.
    """

    def __init__(self, table: StatusTable, on_handled: OnHandled | None) -> None:
        self._table = table
        self._on_handled = on_handled

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the method's handler with its behaviour wrapped, None where there is no such method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method.removeprefix("/")
        codec = (handler.request_deserializer, handler.response_serializer)
        match handler.request_streaming, handler.response_streaming:
            case False, False:
                return grpc.unary_unary_rpc_method_handler(self._wrap(method, handler.unary_unary, unary=True), *codec)
            case False, True:
                return grpc.unary_stream_rpc_method_handler(self._wrap(method, handler.unary_stream), *codec)
            case True, False:
                return grpc.stream_unary_rpc_method_handler(self._wrap(method, handler.stream_unary), *codec)
        return grpc.stream_stream_rpc_method_handler(self._wrap(method, handler.stream_stream), *codec)

    def _wrap(self, method: str, behaviour: Any, *, unary: bool = False) -> Any:
        async def respond(request: Any, context: Context) -> Any:
            async with self._edge(method, context, needs_deadline=unary):
                return await behaviour(request, context)

        async def generate(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self._edge(method, context, needs_deadline=False):
                async for response in behaviour(request, context):
                    yield response

        return generate if inspect.isasyncgenfunction(behaviour) else respond

    @asynccontextmanager
    async def _edge(self, method: str, context: Context, *, needs_deadline: bool) -> AsyncIterator[None]:
        code = grpc.StatusCode.CANCELLED  # what it stays where the caller left while the handler worked
        try:
            if needs_deadline and context.time_remaining() is None:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT, f"{method} was called without a deadline; pass a timeout"
                )
            yield
            code = grpc.StatusCode.OK
        except grpc.aio.AbortError:
            code = context.code()
            raise
        except Exception as error:
            code = status_of(error, self._table)
            text = str(error) or type(error).__name__
            if code is grpc.StatusCode.INTERNAL:
                _log.exception("rpc handler failed", method=method, error=text)
                text = "internal error; see the service's log"
            await context.abort(code, text.encode()[:MAX_STATUS_BYTES].decode(errors="ignore"))
        finally:
            if self._on_handled is not None:
                self._on_handled(method, code)
