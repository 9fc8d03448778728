"""Steps regrouped by length: grouped once for all who ask, with the same answers."""

import asyncio
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub

from dataloader_svc import balancing, store
from tests.data_calls import Service, add_job, describe, read, sst2

PLACES = [(step, dp_rank) for step in (1, 2, 3, 4) for dp_rank in (0, 1)]
"""Two epochs of two steps, the second of each shorter."""

Answers = tuple[list[bytes], dict[tuple[int, int], list[bytes]]]


@pytest.fixture
def grouped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of rows of each batch that is grouped."""
    counts: list[int] = []
    group_ends = balancing.group_ends

    def counting(lengths_n: npt.NDArray[np.int64], num_groups: int) -> list[int]:
        counts.append(len(lengths_n))
        return group_ends(lengths_n, num_groups)

    monkeypatch.setattr(balancing, "group_ends", counting)
    return counts


@pytest.fixture
def job(state: Path, rows: Path) -> str:
    """Return a job of two replicas of two microbatches, 7 of 11 rows a step."""
    changes = {"train__global_batch_size": 7, "schedule__num_microbatches": 2, "parallel__dp": 2}
    add_job(state, "job", sst2(rows, data__microbatching="length_balanced", data__record_rows=True, **changes))
    return "job"


def encoded(answers: list[pb.Microbatch] | list[pb.StepDescription]) -> list[bytes]:
    return [answer.SerializeToString(deterministic=True) for answer in answers]


async def ask(stub: DataServiceStub, job: str) -> Answers:
    described = encoded(await describe(stub, job, 1, 4))
    return described, {(step, rank): encoded(await read(stub, job, step, dp_rank=rank)) for step, rank in PLACES}


async def test_step_that_is_described_and_read_by_all_workers_is_grouped_once(
    service: Service, job: str, grouped: list[int]
) -> None:
    async with service() as stub:
        await ask(stub, job)
        await ask(stub, job)

    assert grouped == [7, 4, 7, 4]


async def test_step_asked_for_by_many_at_once_is_grouped_once(service: Service, job: str, grouped: list[int]) -> None:
    async with service() as stub:
        found = await asyncio.gather(*(read(stub, job, 1, dp_rank=index % 2) for index in range(8)))

    assert grouped == [7]
    assert encoded(found[0]) == encoded(found[2]) != encoded(found[1])


@pytest.mark.parametrize("kept", [1, 3])
async def test_answers_are_those_of_services_that_keep_nothing(
    service: Service, job: str, grouped: list[int], monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    async with service() as stub:
        kept_all = await ask(stub, job)
    alone: dict[tuple[int, int], list[bytes]] = {}
    for step, rank in PLACES[::-1]:
        async with service() as stub:
            alone[step, rank] = encoded(await read(stub, job, step, dp_rank=rank))
    monkeypatch.setattr(store, "MAX_STEPS_KEPT", kept)
    grouped.clear()
    async with service() as stub:
        kept_few = await ask(stub, job)

    assert kept_all == kept_few
    assert kept_all[1] == alone
    assert len(set(map(tuple, alone.values()))) == len(PLACES)
    assert len(grouped) == 8  # what was described first is forgotten by the time that it is read


async def test_jobs_with_other_settings_do_not_share_groups(
    service: Service, state: Path, rows: Path, job: str
) -> None:
    others = {"seed": {"train__seed": 43}, "replicas": {"parallel__dp": 1}, "batch": {"train__global_batch_size": 6}}
    for name, changes in others.items():
        fields = {"train__global_batch_size": 7, "schedule__num_microbatches": 2, "parallel__dp": 2, **changes}
        add_job(state, name, sst2(rows, data__microbatching="length_balanced", data__record_rows=True, **fields))
    alone = {}
    for name in (job, *others):
        async with service() as stub:
            alone[name] = encoded(await describe(stub, name, 1, 3))

    async with service() as stub:
        together = {name: encoded(await describe(stub, name, 1, 3)) for name in (job, *others)}

    assert together == alone
    assert len(set(map(tuple, alone.values()))) == 4
