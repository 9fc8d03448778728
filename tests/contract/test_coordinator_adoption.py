"""What a coordinator makes of jobs that a dead one has left."""

import json
from pathlib import Path

import pytest
from coordinator_rig import rig, spec_json
from takt.v1 import jobs_pb2

from coordinator.files import JobFiles
from coordinator.ownership import Ownership
from coordinator.records import JobRecord, JobState, StateChange, StepRecord
from coordinator.spec import digest, from_json
from coordinator.store import Store


def leave_job(state_dir: Path, *, job: str, owner: str, running: bool) -> None:
    """Leave a job as a coordinator does that was killed; its second step never came into steps.jsonl."""
    text = spec_json()
    store = Store.open(state_dir, owner=owner)
    record = JobRecord(
        id=job, name="tiny", spec_json=text, digest=digest(from_json(text)), owner=owner, num_slots=2,
        state=JobState.QUEUED, reason="submitted", created=1.0,
    )  # fmt: skip
    store.add_job(record)
    files = JobFiles.of(state_dir, job)
    files.create(text)
    if running:
        store.change_state(
            job, StateChange(state=JobState.RUNNING, reason="workers are ready", attempt=1, step=0, time=2.0)
        )
        for number in (1, 2):
            step = StepRecord(
                step=number, epoch=0, loss=0.5, grad_norm=1.0, learning_rate=0.1, examples=8, tokens=9,
                padded_tokens=1, seconds=1.0, skipped=False,
            )  # fmt: skip
            store.add_step(job, step)
            if number == 1:
                files.append_step(step)
    store.close()


async def test_adopt_running_job_waits_for_a_new_attempt_with_a_reason_and_whole_files(tmp_path: Path) -> None:
    leave_job(tmp_path, job="left", owner="dead", running=True)
    async with rig(tmp_path) as world:
        job = await world.job("left")
    assert (job.state, job.step, job.attempt) == (jobs_pb2.JOB_STATE_RECOVERING, 2, 1)
    assert job.history[-1].reason == (
        "its coordinator ended at step 2 without a word; it goes on as soon as it has its slots"
    )
    lines = (tmp_path / "jobs/left/steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


async def test_adopt_queued_job_runs(tmp_path: Path) -> None:
    leave_job(tmp_path, job="left", owner="dead", running=False)
    async with rig(tmp_path) as world:
        await world.add_agents(2)
        assert (await world.until_over("left")).state == jobs_pb2.JOB_STATE_SUCCEEDED


@pytest.mark.parametrize("embedded", [False, True])
async def test_adopt_leaves_the_jobs_of_a_living_coordinator_alone(tmp_path: Path, embedded: bool) -> None:
    other = Ownership.claim(tmp_path, embedded=True)
    leave_job(tmp_path, job="theirs", owner=other.owner, running=True)
    async with rig(tmp_path, embedded=embedded) as world:
        assert (await world.job("theirs")).state == jobs_pb2.JOB_STATE_RUNNING
    other.release()


async def test_embedded_coordinator_takes_over_only_the_job_it_is_asked_for(tmp_path: Path) -> None:
    for job in ("asked", "other"):
        leave_job(tmp_path, job=job, owner="dead", running=True)
    async with rig(tmp_path, embedded=True) as world:
        assert (await world.submit(job="asked")).state == jobs_pb2.JOB_STATE_RECOVERING
    store = Store.open_read_only(tmp_path)
    assert [(record.id, record.state) for record in store.jobs()] == [
        ("asked", JobState.CANCELLED),
        ("other", JobState.RUNNING),
    ]
