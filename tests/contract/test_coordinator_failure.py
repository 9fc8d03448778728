"""How runs end that do not go well, over real gRPC, with fake workers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from coordinator_rig import CALL_SECONDS, Rig, rig, spec_json
from takt.v1 import jobs_pb2, workers_pb2


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as running:
        yield running


def is_running(job: jobs_pb2.Job) -> bool:
    return job.state == jobs_pb2.JOB_STATE_RUNNING


async def free_slots(world: Rig) -> int:
    return [slot.state for slot in await world.slots()].count("free")


async def test_run_worker_raises_fails_with_worker_stage_step_type_text_and_log(world: Rig) -> None:
    world.behaviour.raise_at = (1, 2)
    await world.add_agents(2)
    job = await world.until_over((await world.submit()).id)
    assert job.state == jobs_pb2.JOB_STATE_FAILED
    error = job.error
    assert (error.worker, error.stage, error.step, error.type, error.message, error.log) == (
        1, 1, 2, "ValueError", "boom", "logs/worker-1.log",
    )  # fmt: skip
    assert job.step == 1
    assert job.reason == "boom; see logs/worker-1.log"
    assert await free_slots(world) == 2


async def test_run_worker_is_killed_names_the_signal_and_the_next_job_runs(world: Rig) -> None:
    world.behaviour.killed_at = (1, 3)
    await world.add_agents(2)
    job = await world.until_over((await world.submit()).id)
    assert job.reason == "worker 1 (stage 1) on 127.0.0.1 was ended by signal 9 (SIGKILL); see logs/worker-1.log"
    assert (job.error.type, job.error.worker, job.error.step) == ("signal", 1, 3)
    world.behaviour.killed_at = None
    again = await world.until_over((await world.submit()).id)
    assert again.state == jobs_pb2.JOB_STATE_SUCCEEDED


async def test_run_worker_alone_tells_of_an_overflow_fails_and_does_not_commit_the_step(world: Rig) -> None:
    world.behaviour.overflow_at = frozenset({(1, 2)})
    await world.add_agents(2)
    job = await world.until_over((await world.submit()).id)
    assert (job.state, job.step, job.error.step) == (jobs_pb2.JOB_STATE_FAILED, 1, 2)
    assert job.reason.startswith(
        "the workers disagree on skipped of step 2: "
        "false on worker 0 (stage 0) on 127.0.0.1; true on worker 1 (stage 1) on 127.0.0.1"
    )
    assert await free_slots(world) == 2


async def test_run_evaluation_misses_a_row_fails_naming_it(world: Rig) -> None:
    world.behaviour.leave_out_row = 4
    await world.add_agents(2)
    job = await world.until_over((await world.submit()).id)
    assert job.state == jobs_pb2.JOB_STATE_FAILED
    assert job.reason == "the evaluation has 5 of 6 rows; row 4 was not reported"


async def test_run_data_service_describes_too_few_steps_fails_naming_the_step(world: Rig) -> None:
    world.data.last_step = 2
    await world.add_agents(2)
    job = await world.until_over((await world.submit()).id)
    assert job.state == jobs_pb2.JOB_STATE_FAILED
    assert job.reason == "the data service describes no step 3; 3 were planned"


async def test_run_file_replaced_while_it_runs_fails_naming_the_file(world: Rig) -> None:
    await world.add_agents(2)
    job = await world.submit(spec_json(train={"max_steps": 100_000}))
    await world.until(job.id, lambda found: found.step >= 1)
    world.data.content["train"] = "other"
    ended = await world.until_over(job.id)
    assert ended.state == jobs_pb2.JOB_STATE_FAILED
    assert (ended.error.type, ended.reason) == ("data", ended.error.message)
    assert ended.reason.endswith(" does not serve: FAILED_PRECONDITION: /rows/train.tsv changed")
    assert ended.step < 100_000
    assert await free_slots(world) == 2


async def test_run_file_replaced_after_the_check_of_a_waiting_job_fails_it_before_its_first_step(world: Rig) -> None:
    await world.add_agents(1)
    job = await world.submit()
    world.data.content["train"] = "other"
    await world.add_agents(1)
    ended = await world.until_over(job.id)
    assert (ended.state, ended.step) == (jobs_pb2.JOB_STATE_FAILED, 0)
    assert ended.reason.endswith("/rows/train.tsv changed")


async def test_run_file_of_an_evaluated_split_replaced_fails_at_the_evaluation(world: Rig) -> None:
    world.data.content["validation"] = "other"
    await world.add_agents(2)
    ended = await world.until_over((await world.submit()).id)
    assert (ended.state, ended.step) == (jobs_pb2.JOB_STATE_FAILED, 3)
    assert ended.reason.endswith("/rows/validation.tsv changed")


async def test_cancel_running_job_stops_it_at_a_boundary(world: Rig) -> None:
    await world.add_agents(2)
    job = await world.submit(spec_json(train={"max_steps": 100_000}))
    await world.until(job.id, lambda found: found.step >= 3)
    response = await world.jobs.CancelJob(jobs_pb2.CancelJobRequest(id=job.id), timeout=CALL_SECONDS)
    assert response.job.state in (jobs_pb2.JOB_STATE_CANCELLING, jobs_pb2.JOB_STATE_CANCELLED)
    job = await world.until_over(job.id)
    assert job.state == jobs_pb2.JOB_STATE_CANCELLED
    assert job.reason == f"cancelled by request; step {job.step} was the last one"
    assert not world.agents[0].released
    assert await free_slots(world) == 2


async def test_cancel_hanging_job_kills_it_after_the_grace(world: Rig) -> None:
    world.behaviour.hang_at = (0, 1)
    await world.add_agents(2)
    job = await world.submit()
    await world.until(job.id, is_running)
    request = jobs_pb2.CancelJobRequest(id=job.id, grace_seconds=0.3)
    await world.jobs.CancelJob(request, timeout=CALL_SECONDS)
    assert (await world.until_over(job.id)).state == jobs_pb2.JOB_STATE_CANCELLED
    assert [release.grace_seconds for release in world.agents[0].released] == [0]


async def test_cancel_queued_job_ends_at_once_and_twice_is_the_same(world: Rig) -> None:
    job = await world.submit()
    for _ in range(2):
        response = await world.jobs.CancelJob(jobs_pb2.CancelJobRequest(id=job.id), timeout=CALL_SECONDS)
        assert (response.job.state, response.job.reason) == (jobs_pb2.JOB_STATE_CANCELLED, "cancelled by request")
    await world.add_agents(2)
    other = await world.until_over((await world.submit()).id)
    assert other.state == jobs_pb2.JOB_STATE_SUCCEEDED


async def test_stop_leaves_running_and_queued_jobs_to_the_next_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.service.STOP_GRACE_SECONDS", 1.0)
    async with rig(tmp_path) as world:
        world.behaviour.hang_at = (0, 2)
        await world.add_agents(2)
        running, waiting = await world.submit(), await world.submit()
        await world.until(running.id, is_running)
        async with asyncio.timeout(10):
            await world.coordinator.stop("SIGTERM was received")
    async with rig(tmp_path) as world:
        job = await world.job(running.id)
        assert (job.state, job.step) == (jobs_pb2.JOB_STATE_RECOVERING, 1)
        assert job.history[-2].reason.startswith("the coordinator was stopped; step 1 was the last one")
        await world.add_agents(2)
        for each in (running, waiting):
            assert (await world.until_over(each.id)).state == jobs_pb2.JOB_STATE_SUCCEEDED
        assert (await world.job(running.id)).attempt == 2


async def test_stop_embedded_coordinator_leaves_no_job_queued(tmp_path: Path) -> None:
    async with rig(tmp_path, embedded=True) as world:
        waiting = await world.submit()
        await world.coordinator.stop("stdin was closed")
    async with rig(tmp_path) as world:
        assert (await world.job(waiting.id)).state == jobs_pb2.JOB_STATE_CANCELLED


async def test_agent_same_slot_twice_the_second_is_refused(world: Rig) -> None:
    await world.add_agents(1)

    async def hello() -> AsyncIterator[workers_pb2.AttendRequest]:
        yield workers_pb2.AttendRequest(
            hello=workers_pb2.AgentHello(agent="other", host="127.0.0.1", slot=0, device="cpu")
        )
        await asyncio.Event().wait()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.workers.Attend(hello()).read()
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert "is offered by another agent (pid 10)" in (refused.value.details() or "")


async def test_agent_leaves_in_good_order_its_slot_is_gone(world: Rig) -> None:
    await world.add_agents(2)
    await world.agents[0].leave()
    assert [slot.slot for slot in await world.slots()] == [1]


async def test_agent_without_a_goodbye_is_lost_and_its_slot_is_shown(world: Rig) -> None:
    await world.add_agents(2)
    await world.agents[0].fall_silent()
    assert [slot.state for slot in await world.slots()] == ["lost", "free"]


@pytest.mark.parametrize("stream", ["Attend", "Execute"])
async def test_stream_without_hello_is_refused(world: Rig, stream: str) -> None:
    request = workers_pb2.AttendRequest if stream == "Attend" else workers_pb2.ExecuteRequest

    async def nothing() -> AsyncIterator[object]:
        yield request()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await getattr(world.workers, stream)(nothing()).read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("missing", ["agent", "host", "device"])
async def test_agent_whose_hello_leaves_something_out_offers_no_slot(world: Rig, missing: str) -> None:
    said = {"agent": "other", "host": "elsewhere", "device": "cpu"} | {missing: ""}

    async def hello() -> AsyncIterator[workers_pb2.AttendRequest]:
        yield workers_pb2.AttendRequest(hello=workers_pb2.AgentHello(**said))
        await asyncio.Event().wait()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.workers.Attend(hello()).read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "the hello of an agent must name agent, host and device"


async def test_executor_of_no_run_is_refused(world: Rig) -> None:
    async def hello() -> AsyncIterator[workers_pb2.ExecuteRequest]:
        yield workers_pb2.ExecuteRequest(hello=workers_pb2.ExecutorHello(job="gone", attempt=1, worker=0))
        await asyncio.Event().wait()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.workers.Execute(hello()).read()
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == "attempt 1 of job gone is over; this executor is not needed"
