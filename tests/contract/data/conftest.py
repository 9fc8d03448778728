"""A data service on a free port, and rows for its jobs."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from prometheus_client import CollectorRegistry
from takt.rpc.client import aio_channel
from takt.rpc.server import serve
from takt.v1.data_pb2_grpc import DataServiceStub, add_DataServiceServicer_to_server

from dataloader_svc.metrics import DataMetrics
from dataloader_svc.servicer import SERVICE_NAME, STATUS, DataServicer
from dataloader_svc.store import Datasets
from dataloader_svc.tokens import open_tokenizer
from tests.data_calls import WORDS, Service
from tests.data_jobs import write_sst2


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return an empty state folder."""
    return tmp_path / "state"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return a folder with a built-in tokenizer and 11 training and 10 validation rows, of many lengths."""
    lengths = [3, 9, 1, 6, 2, 8, 4, 10, 5, 7, 1]
    sentences = [(" ".join(WORDS[-length:]), length % 2) for length in lengths]
    write_sst2(tmp_path, sentences)
    write_sst2(tmp_path, sentences[:10], split="dev")
    (tmp_path / "SST-2" / "test.tsv").write_text("index\tsentence\n0\tthe plot\n")
    open_tokenizer(None).save(tmp_path)
    return tmp_path


@pytest.fixture
def service(state: Path) -> Service:
    """Return what starts a service over the state folder and hands out a client."""

    @asynccontextmanager
    async def start(
        *, roots: Iterable[Path] = (Path("/"),), registry: CollectorRegistry | None = None
    ) -> AsyncIterator[DataServiceStub]:
        metrics = DataMetrics(registry or CollectorRegistry())
        servicer = DataServicer(Datasets(state_dir=state, roots=tuple(roots), metrics=metrics))

        def add(server: grpc.aio.Server) -> None:
            add_DataServiceServicer_to_server(servicer, server)

        server = await serve("127.0.0.1:0", add=add, services=[SERVICE_NAME], status=STATUS)
        try:
            async with aio_channel(server.address) as channel:
                yield DataServiceStub(channel)
        finally:
            await server.stop(0)

    return start
