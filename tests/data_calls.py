"""Calls of the data service, and the jobs that they are about."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub

from tests.data_jobs import spec_json

ALL = ("input_ids", "token_type_ids", "attention_mask", "labels")
WORDS = ("the", "plot", "was", "never", "dull", "this", "time", "film", "good", "music")

Service = Callable[..., AbstractAsyncContextManager[DataServiceStub]]
"""Starts a data service over the test's state folder and hands out a client."""


def add_job(state: Path, job: str, changes: Mapping[str, Any] | None = None) -> None:
    path = state / "jobs" / job / "spec.json"
    path.parent.mkdir(parents=True)
    path.write_text(spec_json(changes))


def sst2(folder: Path, **changes: Any) -> dict[str, Any]:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return {"data.task": "sst2", "data.source": str(folder), "data.tokenizer": str(folder), **dotted}


async def read(stub: DataServiceStub, job: str, step: int, **changes: Any) -> list[pb.Microbatch]:
    fields = {"phase": pb.PHASE_TRAIN, "split": "train", "dp_rank": 0, "columns": ALL, **changes}
    answers = stub.ReadStep(pb.ReadStepRequest(job=job, step=step, **fields), timeout=20)
    return [microbatch async for answer in answers for microbatch in answer.microbatches]


async def describe(stub: DataServiceStub, job: str, first: int, count: int, **changes: Any) -> list[pb.StepDescription]:
    fields = {"phase": pb.PHASE_TRAIN, "split": "train", **changes}
    request = pb.DescribeStepsRequest(job=job, first=first, count=count, **fields)
    return list((await stub.DescribeSteps(request, timeout=20)).steps)
