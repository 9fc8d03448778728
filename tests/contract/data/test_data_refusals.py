"""What the data service refuses, over a real socket."""

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from takt.v1 import data_pb2 as pb

from tests.data_calls import Service, add_job, describe, read, sst2
from tests.data_jobs import spec_json


async def test_inspect_data_wrong_task_is_invalid(service: Service) -> None:
    async with service() as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.InspectData(pb.InspectDataRequest(spec_json=spec_json({"data.task": "sst-2"})), timeout=5)

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert raised.value.details() == (
        "data.task is 'sst-2', which is no task; the tasks are: "
        "cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte, wnli, ax, demo"
    )


async def test_paths_outside_the_allowed_roots_are_refused_by_every_call(
    service: Service, state: Path, rows: Path
) -> None:
    add_job(state, "job", sst2(rows))

    async with service(roots=[rows / "elsewhere"]) as stub:
        for call in (
            stub.InspectData(pb.InspectDataRequest(spec_json=spec_json(sst2(rows))), timeout=5),
            describe(stub, "job", 1, 1),
            read(stub, "job", 1),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="under no --allow-root") as raised:
                await call
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"job": "other"}, grpc.StatusCode.NOT_FOUND, "job other has no spec.json in"),
        ({"job": "../job"}, grpc.StatusCode.INVALID_ARGUMENT, "job is '../job', need letters"),
        ({"job": ""}, grpc.StatusCode.INVALID_ARGUMENT, "job is '', need letters"),
        ({"job": "j" * 81}, grpc.StatusCode.INVALID_ARGUMENT, "at most 80"),
        ({"job": "j" * 80}, grpc.StatusCode.NOT_FOUND, "no spec.json"),
        ({"job": "link"}, grpc.StatusCode.INVALID_ARGUMENT, "job link: its spec.json lies outside"),
        ({"step": 0}, grpc.StatusCode.OUT_OF_RANGE, "step is 0, steps count from 1"),
        ({"step": 4}, grpc.StatusCode.OUT_OF_RANGE, "step is 4, the phase has 3 steps"),
        ({"dp_rank": 1}, grpc.StatusCode.INVALID_ARGUMENT, "dp_rank is 1, the job has 1 replicas"),
        ({"columns": []}, grpc.StatusCode.INVALID_ARGUMENT, "need at least one, each once"),
        ({"columns": ["labels", "labels"]}, grpc.StatusCode.INVALID_ARGUMENT, "need at least one, each once"),
        ({"columns": ["position_ids"]}, grpc.StatusCode.INVALID_ARGUMENT, "need some of input_ids"),
        ({"phase": pb.PHASE_UNSPECIFIED}, grpc.StatusCode.INVALID_ARGUMENT, "phase is 0, need PHASE_TRAIN"),
        ({"split": "validation"}, grpc.StatusCode.INVALID_ARGUMENT, "steps that train read the split train"),
        (
            {"phase": pb.PHASE_EVALUATE, "split": "dev"},
            grpc.StatusCode.INVALID_ARGUMENT,
            "split is 'dev', need one of train, validation, validation_matched",
        ),
    ],
)
async def test_read_step_that_does_not_fit_the_job_is_refused(
    service: Service, state: Path, rows: Path, changes: dict[str, Any], code: grpc.StatusCode, message: str
) -> None:
    add_job(state, "job", sst2(rows))
    (rows / "spec.json").write_text(spec_json())
    (state / "jobs" / "link").symlink_to(rows)

    async with service() as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await read(stub, **{"job": "job", "step": 1, **changes})

    assert raised.value.code() is code
    assert message in (raised.value.details() or "")


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 1025)])
async def test_describe_steps_wrong_numbers_are_refused(
    service: Service, state: Path, rows: Path, first: int, count: int
) -> None:
    add_job(state, "job", sst2(rows))

    async with service() as stub:
        with pytest.raises(grpc.aio.AioRpcError, match=f"first is {first} and count is {count}"):
            await describe(stub, "job", first, count)
