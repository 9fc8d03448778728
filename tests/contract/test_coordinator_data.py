"""The coordinator and a data service that is away, silent or busy."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import structlog
from takt.rpc.server import serve
from takt.v1 import data_pb2
from takt.v1.data_pb2_grpc import add_DataServiceServicer_to_server

from coordinator import data_client
from coordinator.data_client import SERVICE, DataClient, DataError
from tests.contract.coordinator_fakes import FakeData, digest_of


class BusyData(FakeData):
    """Describes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def DescribeSteps(  # noqa: N802
        self, request: data_pb2.DescribeStepsRequest, context: Any
    ) -> data_pb2.DescribeStepsResponse:
        await self.go.wait()
        return await super().DescribeSteps(request, context)


@asynccontextmanager
async def serving(data: FakeData, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    def add(server: grpc.aio.Server) -> None:
        add_DataServiceServicer_to_server(data, server)

    server = await serve(listen, add=add, services=[SERVICE], status={})
    try:
        yield server.address
    finally:
        await server.stop(0)


@asynccontextmanager
async def client(address: str) -> AsyncIterator[DataClient]:
    made = DataClient(address)
    try:
        yield made
    finally:
        await made.close()


async def described(made: DataClient) -> list[int]:
    steps = await made.describe(
        "a", phase=data_pb2.PHASE_TRAIN, split="train", digest=digest_of("train"), first=3, count=2
    )
    return [step.step for step in steps]


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"CALL": 0.2, "PROBE": 0.2, "PATIENCE": 1.0, "LOADING": 30.0, "RETRY": 0.05}
    for name, seconds in limits.items():
        monkeypatch.setattr(data_client, f"{name}_SECONDS", seconds)


async def test_data_service_that_lives_and_loads_is_waited_for_longer_than_one_that_is_silent() -> None:
    data = BusyData()
    with structlog.testing.capture_logs() as logs:
        async with serving(data) as address, client(address) as made:
            waiting = asyncio.create_task(described(made))
            await asyncio.sleep(1.6)
            assert not waiting.done()
            data.go.set()
            async with asyncio.timeout(10):
                assert await waiting == [3, 4]
    (told,) = [line for line in logs if line["event"] == "a run waits for the data service"]
    assert (told["job"], told["steps"]) == ("a", "train steps from 3 of job a")
    assert address in told["reason"]


async def test_data_service_that_loads_for_too_long_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_client, "LOADING_SECONDS", 0.5)
    async with serving(BusyData()) as address, client(address) as made:
        with pytest.raises(DataError, match=r"it lives, but has not described train steps from 3 of job a in 0\.5 s"):
            await described(made)


async def test_data_service_that_is_stopped_ends_the_wait_with_its_address_and_what_it_was_asked() -> None:
    """Connections are accepted by the system, as for a process that SIGSTOP has stopped."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with client(address) as made:
            with pytest.raises(DataError) as caught:
                await described(made)
    text = str(caught.value)
    assert f"the data service at {address} does not serve" in text
    assert "gave no sign of life for 1 s, asked for train steps from 3 of job a" in text


async def test_data_service_that_comes_back_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_client, "PATIENCE_SECONDS", 20.0)
    async with serving(FakeData()) as address:
        pass
    async with client(address) as made:
        waiting = asyncio.create_task(described(made))
        await asyncio.sleep(0.3)
        async with serving(FakeData(), address), asyncio.timeout(10):
            assert await waiting == [3, 4]
