"""What every server of the project promises, tried over a real socket."""

import asyncio
import socket
import subprocess
import sys
import time

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from takt.rpc.client import aio_channel
from takt.rpc.errors import AddressInUseError, ListenError
from takt.rpc.server import RunningServer, serve

SERVICE = "test.EchoService"
SECOND_SERVER = """
import asyncio, sys
from takt.rpc.errors import AddressInUseError
from takt.rpc.server import serve
try:
    asyncio.run(serve(sys.argv[1], add=lambda server: None, services=[], status={}))
except AddressInUseError as error:
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(5)
"""


def as_is(message: bytes) -> bytes:
    return message


def converse(channel: grpc.aio.Channel, *, by_write: bool = False) -> grpc.aio.StreamStreamCall[bytes, bytes]:
    method = f"/{SERVICE}/{'ConverseByWrite' if by_write else 'Converse'}"
    return channel.stream_stream(method, as_is, as_is)()


async def call(channel: grpc.aio.Channel, request: bytes, *, seconds: float | None = 5) -> bytes:
    return await channel.unary_unary(f"/{SERVICE}/Unary", as_is, as_is)(request, timeout=seconds)


async def refusal(
    channel: grpc.aio.Channel, request: bytes, *, seconds: float | None = 5
) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, request, seconds=seconds)
    return caught.value.code(), caught.value.details() or ""


async def test_serve_on_port_zero_tells_the_port_and_answers(echo: RunningServer) -> None:
    assert not echo.address.endswith(":0")
    async with aio_channel(echo.address) as channel:
        assert await call(channel, b"hello") == b"hello"


async def test_unary_call_without_deadline_is_refused_naming_the_method(echo: RunningServer) -> None:
    async with aio_channel(echo.address) as channel:
        code, text = await refusal(channel, b"hello", seconds=None)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"{SERVICE}/Unary" in text
    assert "deadline" in text


async def test_listed_error_reaches_the_caller_with_its_code_and_text(echo: RunningServer) -> None:
    async with aio_channel(echo.address) as channel:
        assert await refusal(channel, b"refuse no stage 3") == (grpc.StatusCode.FAILED_PRECONDITION, "no stage 3")
        assert await refusal(channel, b"refuse-twice x") == (grpc.StatusCode.FAILED_PRECONDITION, "x")


async def test_unlisted_error_reaches_the_log_but_not_the_caller(echo: RunningServer) -> None:
    """H94: a crash in a handler must not show only as UNKNOWN, nor tell strangers what is inside."""
    async with aio_channel(echo.address) as channel:
        with capture_logs() as logs:
            code, text = await refusal(channel, b"crash boom")
    assert (code, text) == (grpc.StatusCode.INTERNAL, "internal error; see the service's log")
    (line,) = logs
    assert line["method"] == f"{SERVICE}/Unary"
    assert line["error"] == "boom"
    assert line["exc_info"]


async def test_abort_by_a_handler_keeps_its_code(echo: RunningServer) -> None:
    async with aio_channel(echo.address) as channel:
        assert await refusal(channel, b"abort no job x1") == (grpc.StatusCode.NOT_FOUND, "no job x1")


async def test_error_text_of_any_length_arrives_cut_but_with_its_code(echo: RunningServer) -> None:
    async with aio_channel(echo.address) as channel:
        code, text = await refusal(channel, b"refuse " + "é".encode() * 50_000)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert set(text) == {"é"}


@pytest.mark.parametrize("by_write", [False, True], ids=["generator", "writer"])
async def test_stream_error_after_answers_is_translated(echo: RunningServer, by_write: bool) -> None:
    async with aio_channel(echo.address) as channel:
        stream = converse(channel, by_write=by_write)
        await stream.write(b"a")
        assert await stream.read() == b"a"
        await stream.write(b"refuse late")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details() == "late"


async def test_unary_stream_and_stream_unary_errors_are_translated(echo: RunningServer) -> None:
    async with aio_channel(echo.address) as channel:
        generated = channel.unary_stream(f"/{SERVICE}/Generate", as_is, as_is)(b"refuse second")
        assert await generated.read() == b"first"
        with pytest.raises(grpc.aio.AioRpcError, match="second"):
            await generated.read()
        with pytest.raises(grpc.aio.AioRpcError, match="none"):
            await channel.stream_unary(f"/{SERVICE}/Collect", as_is, as_is)(iter([b"a", b"refuse none"]))
        assert await channel.stream_unary(f"/{SERVICE}/Collect", as_is, as_is)(iter([b"a", b"b"])) == b"ab"


async def test_handled_calls_are_counted_by_method_and_code(
    echo: RunningServer, echo_registry: CollectorRegistry
) -> None:
    async with aio_channel(echo.address) as channel:
        await call(channel, b"a")
        await call(channel, b"b")
        await refusal(channel, b"refuse x")
        await refusal(channel, b"x", seconds=None)
        stream = channel.unary_stream(f"/{SERVICE}/Generate", as_is, as_is)(b"hang")
        assert await stream.read() == b"first"
        stream.cancel()
    await echo.stop(5)  # the cancelled handler has ended after it
    counted = {
        (sample.labels["method"], sample.labels["code"]): sample.value
        for family in echo_registry.collect()
        for sample in family.samples
        if sample.name == "takt_rpc_server_handled_total"
    }
    assert counted == {
        (f"{SERVICE}/Unary", "OK"): 2,
        (f"{SERVICE}/Unary", "FAILED_PRECONDITION"): 1,
        (f"{SERVICE}/Unary", "INVALID_ARGUMENT"): 1,
        (f"{SERVICE}/Generate", "CANCELLED"): 1,
    }


async def test_health_follows_set_serving(echo: RunningServer) -> None:
    async with aio_channel(echo.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        assert (await health.Check(request, timeout=5)).status == health_pb2.HealthCheckResponse.SERVING
        await echo.set_serving(False)
        assert (await health.Check(request, timeout=5)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        everything = health_pb2.HealthCheckRequest()
        assert (await health.Check(everything, timeout=5)).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_reflection_lists_the_services(echo: RunningServer) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with aio_channel(echo.address) as channel:
        answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
        names = {service.name async for answer in answers for service in answer.list_services_response.service}
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_serve_on_a_used_port_is_refused_while_the_first_serves_all_calls(echo: RunningServer) -> None:
    """H84: with reuse of ports left on, two servers would share the calls."""
    with pytest.raises(AddressInUseError, match=f"address in use.*{echo.address}"):
        await serve(echo.address, add=lambda server: None, services=[], status={})
    for _ in range(20):
        async with aio_channel(echo.address) as channel:
            assert await call(channel, b"hello") == b"hello"


async def test_second_process_on_a_used_port_exits_within_five_seconds(echo: RunningServer) -> None:
    """H84, with the second server in a process of its own, and one clear line."""
    started = time.monotonic()
    second = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SECOND_SERVER, echo.address, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(second.communicate(), timeout=20)
    assert time.monotonic() - started < 5
    assert second.returncode == 5
    assert out == b""
    assert err.decode().splitlines() == [
        f"error: address in use: another process listens on {echo.address}; "
        "stop it, or choose another port (0 takes any)"
    ]


async def test_serve_on_a_port_of_a_foreign_process_is_refused() -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        with pytest.raises(AddressInUseError):
            await serve(f"127.0.0.1:{foreign.getsockname()[1]}", add=lambda server: None, services=[], status={})


async def test_serve_beyond_loopback_needs_insecure() -> None:
    with pytest.raises(ListenError, match="--insecure"):
        await serve("0.0.0.0:0", add=lambda server: None, services=[], status={})
    server = await serve("0.0.0.0:0", add=lambda server: None, services=[], status={}, insecure=True)
    await server.stop(0)


async def test_stop_ends_a_stream_after_its_grace_and_frees_the_port(echo: RunningServer) -> None:
    async with aio_channel(echo.address) as channel:
        stream = converse(channel)
        await stream.write(b"a")
        assert await stream.read() == b"a"
        await asyncio.wait_for(echo.stop(0.1), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
    successor = await serve(echo.address, add=lambda server: None, services=[], status={})
    await successor.stop(0)
