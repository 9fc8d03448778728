"""Many readers at once: limits, deadlines and readers that do not read."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
import structlog
import torch
from prometheus_client import CollectorRegistry
from takt.rpc.client import MAX_MESSAGE_BYTES, aio_channel, channel
from takt.rpc.server import serve
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub, add_DataServiceServicer_to_server

from dataloader_svc import store
from dataloader_svc.encode import MAX_COLUMN_BYTES, encode_microbatch
from dataloader_svc.errors import RequestError
from dataloader_svc.metrics import DataMetrics
from dataloader_svc.microbatches import Column, ColumnName, Microbatch
from dataloader_svc.servicer import SERVICE_NAME, STATUS, DataServicer
from stage_worker.batches import DataServiceSource
from stage_worker.engine.commands import Phase, Shape, StepSetting
from tests.data_calls import ALL, Service, add_job, describe, read, sst2
from tests.data_jobs import spec_json

MANY = 15
"""Other splits that fit into memory beside one."""
REQUEST = pb.ReadStepRequest(job="job", phase=pb.PHASE_TRAIN, split="train", step=1, columns=ALL)


class Generated:
    """In the place of `Datasets`: one step of equal microbatches, and how many of them were built."""

    def __init__(self, registry: CollectorRegistry, *, num_microbatches: int, shape: tuple[int, int]) -> None:
        self.metrics = DataMetrics(registry)
        self.num_built = 0
        self._num_microbatches = num_microbatches
        self._shape = shape

    async def read(self, *_: object, columns: list[str], **__: object) -> Iterator[Microbatch]:
        return self._build([ColumnName(name) for name in columns])

    def _build(self, names: list[ColumnName]) -> Iterator[Microbatch]:
        for index in range(self._num_microbatches):
            values = {name: np.full(self._shape, place + 10 * index) for place, name in enumerate(names)}
            columns = tuple(Column(name=name, values=values[name]) for name in names)
            self.num_built += 1
            yield Microbatch(index=index, row_ids=np.arange(self._shape[0]), columns=columns)


@asynccontextmanager
async def serving(generated: Any) -> AsyncIterator[str]:
    server = await serve(
        "127.0.0.1:0",
        add=lambda server: add_DataServiceServicer_to_server(DataServicer(generated), server),
        services=[SERVICE_NAME],
        status=STATUS,
    )
    try:
        yield server.address
    finally:
        await server.stop(0)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return what lets loads and inspections of cold data go on; tokens of at most 100 places are not cold."""
    go = threading.Event()
    tokenise, inspect = store._tokenise, store.inspect_data

    def wait_and_tokenise(settings: Any, split: Any) -> Any:
        assert settings.max_length <= 100 or go.wait(30)
        return tokenise(settings, split)

    def wait_and_inspect(settings: Any) -> Any:
        assert go.wait(30)
        return inspect(settings)

    monkeypatch.setattr(store, "_tokenise", wait_and_tokenise)
    monkeypatch.setattr(store, "inspect_data", wait_and_inspect)
    yield go
    go.set()


def reads(registry: CollectorRegistry) -> tuple[float | None, float | None]:
    """Return how many reads are queued, and how many sending."""
    states = ("queued", "sending")
    queued, sending = (registry.get_sample_value("takt_data_reads", {"state": state}) for state in states)
    return queued, sending


async def until(what: str, *, is_so: Any) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


async def test_jobs_read_at_once_get_what_each_gets_alone(service: Service, state: Path, rows: Path) -> None:
    jobs = {
        "one": sst2(rows, train__seed=1, train__global_batch_size=4),
        "two": sst2(rows, train__seed=2, train__global_batch_size=4),
        "three": sst2(rows, train__seed=1, train__global_batch_size=4, data__max_length=5),
        "four": sst2(rows, train__global_batch_size=4, data__microbatching="length_balanced"),
        "five": {"train.global_batch_size": 4},
    }
    for job, changes in jobs.items():
        add_job(state, job, {**changes, "parallel.dp": 2})
    places = [(job, step, rank) for step in range(1, 10) for rank in (0, 1) for job in jobs]

    async with service() as stub:
        together = await asyncio.gather(*(read(stub, job, step, dp_rank=rank) for job, step, rank in places))
    async with service() as stub:
        alone = [await read(stub, job, step, dp_rank=rank) for job, step, rank in places]

    assert together == alone
    # Short last steps of two jobs may be alike.
    assert len({tuple(each.SerializeToString() for each in step) for step in alone}) > len(places) / 2


async def test_job_is_served_while_many_others_wait_for_their_splits_and_facts(
    service: Service, state: Path, rows: Path, stuck: threading.Event
) -> None:
    registry = CollectorRegistry()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))  # fewer than those that wait
    add_job(state, "warm", sst2(rows, data__max_length=100))
    for index in range(MANY):
        add_job(state, f"cold{index}", sst2(rows, data__max_length=101 + index))
    async with service(registry=registry) as stub:
        await read(stub, "warm", 1)
        request = pb.InspectDataRequest(spec_json=spec_json(sst2(rows)))
        waiting = [asyncio.ensure_future(stub.InspectData(request, timeout=30)) for _ in range(MANY)]
        waiting += [asyncio.create_task(read(stub, f"cold{index}", 1)) for index in range(MANY)]
        await until("all reads are queued", is_so=lambda: reads(registry) == (MANY, 0))

        async with asyncio.timeout(5):
            warm = [await read(stub, "warm", 1), await describe(stub, "warm", 1, 1)]
        assert all(warm)
        assert not any(task.done() for task in waiting)
        assert reads(registry) == (MANY, 0)

        stuck.set()
        *_, last = await asyncio.gather(*waiting)
    assert [each.columns for each in last] == [each.columns for each in warm[0]]
    assert reads(registry) == (0, 0)


async def test_read_ends_at_its_deadline_and_its_split_is_loaded_all_the_same(
    service: Service, state: Path, rows: Path, stuck: threading.Event
) -> None:
    registry = CollectorRegistry()
    add_job(state, "job", sst2(rows))
    async with service(registry=registry) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [answer async for answer in stub.ReadStep(REQUEST, timeout=0.3)]
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until("the read has ended", is_so=lambda: reads(registry) == (0, 0))

        later = asyncio.create_task(read(stub, "job", 1))
        await until("the next read is queued", is_so=lambda: reads(registry) == (1, 0))
        stuck.set()
        assert len(await later) == 8
    queue_seconds = registry.get_sample_value("takt_data_queue_seconds_sum", {"dp_rank": "0"})
    assert queue_seconds is not None
    assert 0 < queue_seconds < 10
    assert registry.get_sample_value("takt_data_queue_seconds_count", {"dp_rank": "0"}) == 1  # the one that got rows


async def test_reader_that_does_not_read_holds_back_its_own_rows_and_nobody_else() -> None:
    registry = CollectorRegistry()
    generated = Generated(registry, num_microbatches=32, shape=(64, 512))  # 1 MiB each
    request = pb.ReadStepRequest(job="job", phase=pb.PHASE_TRAIN, split="train", step=1, dp_rank=3, columns=ALL[:4])
    async with serving(generated) as address, aio_channel(address) as slow, aio_channel(address) as quick:
        call = DataServiceStub(slow).ReadStep(request, timeout=30)
        assert (await call.read()).microbatches[0].microbatch == 0
        await until("the service waits for its reader", is_so=lambda: reads(registry) == (0, 1))
        await asyncio.sleep(0.5)  # what it builds meanwhile stays in memory
        assert generated.num_built < 16

        answers = [answer async for answer in DataServiceStub(quick).ReadStep(REQUEST, timeout=20)]
        assert [each.microbatch for answer in answers for each in answer.microbatches] == list(range(32))

        with structlog.testing.capture_logs() as logs:
            call.cancel()
            await until("the read has ended", is_so=lambda: reads(registry) == (0, 0))
    assert logs == []  # that a reader leaves is no fault
    assert (registry.get_sample_value("takt_data_send_seconds_total", {"dp_rank": "3"}) or 0) >= 0.4
    assert generated.num_built < 32 + 20


async def test_microbatch_larger_than_a_message_arrives_whole() -> None:
    """Four columns of 4,096 rows of 512 tokens."""
    registry = CollectorRegistry()
    shape = (4096, 512)
    names = sorted(ALL)
    setting = StepSetting(Phase.TRAIN, "train", 1, 1, (Shape(*shape),))
    async with serving(Generated(registry, num_microbatches=1, shape=shape)) as address:
        with channel(address) as opened:
            batches = DataServiceSource(opened, address=address, job="job", dp_rank=0, columns=names)
            batch = await asyncio.to_thread(batches.get, setting, 0)
            batches.close()
    columns = {
        "input_ids": batch.input_ids_BL,
        "token_type_ids": batch.token_type_ids_BL,
        "attention_mask": batch.attention_mask_BL,
        "labels": batch.labels,
    }
    assert batch.row_ids == tuple(range(4096))
    assert sum(column.nbytes for column in columns.values() if column is not None) >= MAX_MESSAGE_BYTES
    for place, name in enumerate(names):
        assert torch.equal(columns[name], torch.full(shape, place))


def test_column_larger_than_a_message_is_refused_with_what_helps() -> None:
    values = np.zeros((MAX_COLUMN_BYTES // (512 * 8) + 1, 512), dtype=np.int64)
    column = Column(name=ColumnName.INPUT_IDS, values=values)
    with pytest.raises(RequestError, match=r"microbatch 3 has 15873 rows: its input_ids take .* use more microbatches"):
        encode_microbatch(Microbatch(index=3, row_ids=np.arange(len(values)), columns=(column,)))
