"""A submit that was answered is kept, whatever happens next; the same one again is the same job."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from coordinator_process import coordinator
from coordinator_rig import CALL_SECONDS, Rig, rig, spec_json
from takt.rpc.client import aio_channel
from takt.v1 import jobs_pb2, jobs_pb2_grpc

NUM_KILLS = int(os.environ.get("TAKT_SUBMITS", "25"))


async def submit(stub: jobs_pb2_grpc.JobServiceStub, job: str, text: str) -> jobs_pb2.Job:
    response: jobs_pb2.SubmitJobResponse = await stub.SubmitJob(
        jobs_pb2.SubmitJobRequest(id=job, spec_json=text), timeout=CALL_SECONDS
    )
    return response.job


@pytest.mark.timeout(60 + 5 * NUM_KILLS)
async def test_submit_that_was_answered_outlives_a_kill_at_that_moment(tmp_path: Path) -> None:
    text = spec_json()
    created: dict[str, float] = {}
    for number in range(NUM_KILLS + 1):
        async with coordinator(tmp_path) as process, aio_channel(process.address) as channel:
            stub = jobs_pb2_grpc.JobServiceStub(channel)
            if number > 0:
                # Nobody knows what became of this one, so its caller says it again; it may be there or not.
                again = await submit(stub, f"torn-{number - 1}", text)
                created[again.id] = again.created
            listed = await stub.ListJobs(jobs_pb2.ListJobsRequest(), timeout=CALL_SECONDS)
            assert {job.id: job.created for job in listed.jobs} == created
            assert {job.state for job in listed.jobs} <= {jobs_pb2.JOB_STATE_QUEUED}
            if number == NUM_KILLS:
                break
            torn = asyncio.create_task(submit(stub, f"torn-{number}", text))
            job = await submit(stub, f"kept-{number}", text)
            process.child.send_signal(signal.SIGKILL)
            await process.child.wait()
            created[job.id] = job.created
            await asyncio.gather(torn, return_exceptions=True)
    for job_id in created:
        assert (tmp_path / "jobs" / job_id / "spec.json").read_text() == text


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as running:
        yield running


async def test_submit_of_one_id_fifty_times_at_once_gives_one_job(world: Rig) -> None:
    texts = [spec_json(), spec_json("another")]
    answers = await asyncio.gather(
        *(submit(world.jobs, "one", texts[number % 2]) for number in range(100)), return_exceptions=True
    )
    jobs = [answer for answer in answers if isinstance(answer, jobs_pb2.Job)]
    refusals = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert (len(jobs), len(refusals)) == (50, 50)
    assert {(job.id, job.name, job.created) for job in jobs} == {("one", jobs[0].name, jobs[0].created)}
    assert {refusal.code() for refusal in refusals} == {grpc.StatusCode.ALREADY_EXISTS}
    listed = await world.jobs.ListJobs(jobs_pb2.ListJobsRequest(), timeout=CALL_SECONDS)
    assert [job.id for job in listed.jobs] == ["one"]
    job = await world.job("one")
    assert len(job.history) == 1
