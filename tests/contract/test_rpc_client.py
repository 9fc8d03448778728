"""What every channel of the project promises, tried over a real socket."""

from typing import Any

import grpc
import grpc.aio
import pytest
from takt.rpc.client import MAX_MESSAGE_BYTES, aio_channel, channel
from takt.rpc.limits import CLIENT_OPTIONS, SERVER_OPTIONS
from takt.rpc.server import RunningServer

METHOD = "test.EchoService/Unary"
BATCH_BYTES = 512 * 512 * 3 * 8


def as_is(message: bytes) -> bytes:
    return message


def unary(ours: grpc.aio.Channel) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    return ours.unary_unary(f"/{METHOD}", as_is, as_is)


async def test_channel_ignores_proxies_of_the_environment(echo: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """H86: a proxy that refuses everything must not be asked."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with grpc.aio.insecure_channel(echo.address) as plain:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(plain)(b"hello", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    async with aio_channel(echo.address) as ours:
        assert await unary(ours)(b"hello", timeout=5) == b"hello"


@pytest.mark.parametrize("size", [BATCH_BYTES, 5 * 1024 * 1024], ids=["batch", "job spec"])
async def test_message_of_several_mebibytes_goes_both_ways(echo: RunningServer, size: int) -> None:
    """H87: gRPC's own limit is 4 MiB, and it is often raised at one end only."""
    message = bytes(size)
    async with aio_channel(echo.address) as ours:
        assert await unary(ours)(message, timeout=20) == message


async def test_message_over_the_limit_is_refused_with_size_and_limit(echo: RunningServer) -> None:
    """H87: over the limit there is one clear message."""
    async with aio_channel(echo.address) as ours:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(ours)(bytes(MAX_MESSAGE_BYTES + 1), timeout=20)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_MESSAGE_BYTES + 1) in str(caught.value.details())
    assert str(MAX_MESSAGE_BYTES) in str(caught.value.details())


async def test_idempotent_method_is_called_again_after_unavailable(echo: RunningServer, echo_handlers: Any) -> None:
    async with aio_channel(echo.address, idempotent=[METHOD]) as ours:
        assert await unary(ours)(b"unavailable-once", timeout=5) == b"unavailable-once"
    assert echo_handlers.calls == 2


async def test_other_method_is_never_called_again(echo: RunningServer, echo_handlers: Any) -> None:
    async with aio_channel(echo.address, idempotent=["test.EchoService/Other"]) as ours:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(ours)(b"unavailable-once", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert echo_handlers.calls == 1


def test_sync_channel_to_nobody_is_unavailable_within_its_deadline() -> None:
    with channel("127.0.0.1:9") as ours, pytest.raises(grpc.RpcError) as caught:
        ours.unary_unary(f"/{METHOD}", as_is, as_is)(b"hello", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_client_pings_are_far_rarer_than_a_server_allows() -> None:
    """H88: a server ends a connection that pings too often; quiet calls must outlive any wait."""
    client, server = dict(CLIENT_OPTIONS), dict(SERVER_OPTIONS)
    assert int(client["grpc.keepalive_time_ms"]) >= 2 * int(server["grpc.http2.min_ping_interval_without_data_ms"])
    assert server["grpc.keepalive_permit_without_calls"] == client["grpc.keepalive_permit_without_calls"] == 1
