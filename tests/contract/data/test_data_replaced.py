"""Files that are replaced while a job uses them: noticed by every call that tells which rows it means."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from takt.rpc.client import channel
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub

from stage_worker.batches import DataServiceSource
from stage_worker.engine.batch_source import DataError
from stage_worker.engine.commands import Phase, Shape, StepSetting
from tests.contract.data.test_data_process import run, running
from tests.data_calls import WORDS, Service, add_job, describe, read, sst2
from tests.data_jobs import spec_json, write_sst2

SENTENCES = [(" ".join(WORDS[: 1 + row % 10]), row % 2) for row in range(100)]
EVALUATION = {"phase": pb.PHASE_EVALUATE, "split": "validation"}


@pytest.fixture
def settings(rows: Path, state: Path) -> dict[str, Any]:
    """Return the settings of the job ``job``: 100 rows, and steps beyond what half of them has in an epoch."""
    write_sst2(rows, SENTENCES)
    changes = sst2(rows, train__max_steps=20)
    add_job(state, "job", changes)
    return changes


async def digests_of(stub: DataServiceStub, changes: dict[str, Any]) -> dict[str, str]:
    response = await stub.InspectData(pb.InspectDataRequest(spec_json=spec_json(changes)), timeout=20)
    return {split.name: split.digest for split in response.facts.splits}


async def refusal(stub: DataServiceStub, digest: str, **changes: Any) -> str:
    """Return what both calls say, which must be the same."""
    told = set()
    for call in (describe(stub, "job", 2, 1, digest=digest, **changes), read(stub, "job", 2, digest=digest, **changes)):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        told.add(raised.value.details())
    (text,) = told
    assert text is not None
    return text


def cut(rows: Path) -> None:
    write_sst2(rows, SENTENCES[:50])


def swap_two_rows(rows: Path) -> None:
    write_sst2(rows, [*SENTENCES[1::-1], *SENTENCES[2:]])


def change_a_label(rows: Path) -> None:
    write_sst2(rows, [*SENTENCES[:-1], (SENTENCES[-1][0], 1 - SENTENCES[-1][1])])


@pytest.mark.parametrize("replace", [cut, swap_two_rows, change_a_label])
async def test_file_replaced_after_the_first_step_is_refused_by_name_and_other_splits_go_on(
    service: Service, rows: Path, settings: dict[str, Any], replace: Callable[[Path], None]
) -> None:
    async with service() as stub:
        digests = await digests_of(stub, settings)
        await describe(stub, "job", 1, 1, digest=digests["train"])
        await read(stub, "job", 1, digest=digests["train"])
        replace(rows)

        assert await refusal(stub, digests["train"]) == (
            f"the rows of the split train in {rows}/SST-2/train.tsv changed after job job was checked, so it cannot "
            "go on; start it again, with what is there now or with what was there before put back, "
            "and leave its files alone while it runs"
        )
        assert len(await describe(stub, "job", 1, 1, digest=digests["validation"], **EVALUATION)) == 1
        assert len(await describe(stub, "job", 2, 1, digest="")) == 1  # who knows no digest is not held to any
        now = await digests_of(stub, settings)
        assert [split for split in now if now[split] != digests[split]] == ["train"]
        assert len(await read(stub, "job", 2, digest=now["train"])) == 8


async def test_file_replaced_while_no_service_runs_is_refused_by_the_next_one(
    service: Service, rows: Path, settings: dict[str, Any]
) -> None:
    async with service() as stub:
        digests = await digests_of(stub, settings)
        await read(stub, "job", 1, digest=digests["train"])
    cut(rows)

    async with service() as stub:
        assert f"{rows}/SST-2/train.tsv changed" in await refusal(stub, digests["train"])


async def test_same_rows_under_another_service_a_new_date_or_put_back_go_on_with_the_same_bytes(
    service: Service, rows: Path, settings: dict[str, Any]
) -> None:
    async with service() as stub:
        digest = (await digests_of(stub, settings))["train"]
        first = await read(stub, "job", 9, digest=digest)
    served = []
    for life in range(3):  # from kept tokens; tokenised again; put back after a refusal
        async with service() as stub:
            if life == 1:
                shutil.rmtree(rows.parent / "state" / "cache", ignore_errors=True)
                write_sst2(rows, SENTENCES)
            if life == 2:
                cut(rows)
                await refusal(stub, digest)
                write_sst2(rows, SENTENCES)
            served.append(await read(stub, "job", 9, digest=digest))

    assert served == [first] * 3
    assert sum(len(microbatch.row_ids) for microbatch in first) == 32


async def test_tokenizer_replaced_is_refused_as_such_for_every_split(
    service: Service, rows: Path, settings: dict[str, Any]
) -> None:
    async with service() as stub:
        digests = await digests_of(stub, settings)
        path = rows / "tokenizer.json"
        saved = json.loads(path.read_text())
        saved["normalizer"] = None
        path.write_text(json.dumps(saved))

        assert f"the tokenizer in {rows} changed after job job was checked" in await refusal(stub, digests["train"])
        assert f"the tokenizer in {rows} changed" in await refusal(stub, digests["validation"], **EVALUATION)


async def test_demo_has_digests_that_facts_of_another_process_tell(service: Service, state: Path) -> None:
    add_job(state, "job")
    facts = json.loads(run("facts", "-", stdin=spec_json()).stdout)
    digests = {split["name"]: split["digest"] for split in facts["splits"]}

    async with service() as stub:
        for split, changes in {"train": {}, "validation": EVALUATION}.items():
            assert len(await describe(stub, "job", 1, 1, digest=digests[split], **changes)) == 1
        assert "of the split train in the built-in task demo changed" in await refusal(stub, digests["validation"])
    assert len(set(digests.values())) == 3


async def test_worker_that_reads_ahead_is_told_of_the_file(
    service: Service, state: Path, rows: Path, settings: dict[str, Any]
) -> None:
    async with service() as stub:
        digests = await digests_of(stub, settings)
        steps = [
            StepSetting(
                phase=Phase.TRAIN,
                split="train",
                step=step.step,
                denominator=step.denominator,
                microbatches=tuple(Shape(shape.rows, shape.width) for shape in step.replicas[0].microbatches),
            )
            for step in await describe(stub, "job", 1, 20)
        ]
    with running(state) as (_, announced), channel(announced.address or "") as opened:
        batches = DataServiceSource(
            opened, address="here", job="job", dp_rank=0, columns=["input_ids", "attention_mask"], digests=digests
        )
        batches.get(steps[0], 0)
        cut(rows)
        with pytest.raises(DataError, match=f"FAILED_PRECONDITION: the rows .* in {rows}/SST-2/train.tsv changed"):
            batches.get(steps[19], 0)  # beyond what it may have read before
        batches.close()
