"""What users may ask of jobs, over real gRPC."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from coordinator_fakes import MODEL_FACTS, data_facts
from coordinator_rig import CALL_SECONDS, Rig, rig, spec_json
from takt.v1 import jobs_pb2


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as running:
        yield running


async def refusal(world: Rig, text: str, *, job: str = "") -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.submit(text, job=job)
    return refused.value


async def test_submit_without_id_makes_one_from_the_name(world: Rig) -> None:
    first, second = await world.submit(), await world.submit()
    assert first.id != second.id
    assert first.id.startswith("tiny-")


@pytest.mark.parametrize(
    ("name", "begins"), [("_tiny", "tiny-"), ("...a.b", "a.b-"), ("--", "job-"), ("n" * 63, "n" * 63)]
)
async def test_submit_without_id_makes_one_that_is_a_file_name_from_any_name(
    world: Rig, name: str, begins: str
) -> None:
    assert (await world.submit(spec_json(name))).id.startswith(begins)


async def test_submit_same_id_and_spec_is_the_same_job_and_another_spec_a_conflict(world: Rig) -> None:
    first = await world.submit(job="mine")
    # The same spec written differently: keys in another order, no blanks.
    text = json.dumps(dict(reversed(json.loads(spec_json()).items())))
    assert (await world.submit(text, job="mine")).created == first.created
    error = await refusal(world, spec_json(train={"max_steps": 4}), job="mine")
    assert error.code() is grpc.StatusCode.ALREADY_EXISTS
    assert (error.details() or "").startswith("job mine exists with another spec")


async def test_submit_same_id_at_once_makes_one_job(world: Rig) -> None:
    jobs = await asyncio.gather(*(world.submit(job="mine") for _ in range(8)))
    assert len({job.created for job in jobs}) == 1
    listed = await world.jobs.ListJobs(jobs_pb2.ListJobsRequest(), timeout=CALL_SECONDS)
    assert [job.id for job in listed.jobs] == ["mine"]


@pytest.mark.parametrize("job", ["../up", "a/b", ".hidden", "-dash", "x" * 81, "a b"])
async def test_submit_id_that_is_no_file_name_is_refused(world: Rig, job: str) -> None:
    error = await refusal(world, spec_json(), job=job)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert repr(job) in (error.details() or "")
    assert not (world.state_dir / "jobs").exists()


async def test_submit_bad_spec_is_refused_naming_the_key(world: Rig) -> None:
    document = json.loads(spec_json())
    document["train"]["max_step"] = 3
    error = await refusal(world, json.dumps(document))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "max_step" in (error.details() or "")


async def test_submit_agent_and_data_service_refuse_tells_both_and_queues_nothing(world: Rig) -> None:
    await world.add_agents(1)
    world.agents[0].model_error = "folder /nowhere has no config.json"
    world.data.refusal = "folder /nowhere has no SST-2/train.tsv"
    error = await refusal(world, spec_json(), job="bad")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "no config.json" in (error.details() or "")
    assert "no SST-2/train.tsv" in (error.details() or "")
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await world.job("bad")
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_submit_model_too_small_for_the_stages_is_refused(world: Rig) -> None:
    await world.add_agents(1)
    error = await refusal(world, spec_json(parallel={"pp": 5}))
    assert (error.details() or "").startswith("parallel.pp: is 5, but the model has 4 layers")


@pytest.mark.parametrize("num_agents", [0, 1])
async def test_submit_custom_plan_that_breaks_a_rule_is_refused_with_the_place(world: Rig, num_agents: int) -> None:
    await world.add_agents(num_agents)
    backward_first = "0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n"
    error = await refusal(world, spec_json(schedule={"name": "custom", "file": backward_first}), job="bad")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    first, *figure = (error.details() or "").splitlines()
    assert first.startswith("schedule.file: the plan breaks the rule: ")
    assert ["[1B0]" in line for line in figure if "<--" in line] == [True]
    with pytest.raises(grpc.aio.AioRpcError, match="no job bad"):
        await world.job("bad")


async def test_submit_path_of_a_plan_instead_of_the_plan_is_refused_by_name(world: Rig) -> None:
    document = json.loads(spec_json())
    document["schedule"] |= {"name": "custom", "file": "/plans/plan.csv"}
    error = await refusal(world, json.dumps(document))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (error.details() or "").startswith("schedule.file: is '/plans/plan.csv', a path; ")


async def test_submit_before_any_agent_is_looked_at_when_it_gets_its_slots(world: Rig) -> None:
    world.data.refusal = "no such folder"
    job = await world.submit()
    assert job.state == jobs_pb2.JOB_STATE_QUEUED
    await world.add_agents(2)
    job = await world.until_over(job.id)
    assert (job.state, job.reason, job.attempt) == (jobs_pb2.JOB_STATE_FAILED, "data: no such folder", 0)
    assert [slot.state for slot in await world.slots()] == ["free", "free"]


async def test_list_jobs_newest_first_without_history(world: Rig) -> None:
    for job in ("a", "b", "c"):
        await world.submit(job=job)
    listed = await world.jobs.ListJobs(jobs_pb2.ListJobsRequest(), timeout=CALL_SECONDS)
    assert [job.id for job in listed.jobs] == ["c", "b", "a"]
    assert not any(job.history for job in listed.jobs)


async def test_list_jobs_by_pages_states_and_prefix(world: Rig) -> None:
    for job in ("a1", "b1", "a2", "a3"):
        await world.submit(job=job)
    await world.jobs.CancelJob(jobs_pb2.CancelJobRequest(id="a2"), timeout=CALL_SECONDS)

    async def page(**fields: Any) -> tuple[list[str], str]:
        listed = await world.jobs.ListJobs(jobs_pb2.ListJobsRequest(**fields), timeout=CALL_SECONDS)
        return [job.id for job in listed.jobs], listed.next_page_token

    first, token = await page(prefix="a", page_size=2)
    await world.submit(job="a4")
    assert (first, await page(prefix="a", page_size=2, page_token=token)) == (["a3", "a2"], (["a1"], ""))
    assert await page(states=["JOB_STATE_CANCELLED"]) == (["a2"], "")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await page(page_token="nonsense")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_jobs_start_by_priority_then_in_the_order_they_came(world: Rig) -> None:
    async def submit(job: str, priority: int) -> jobs_pb2.Job:
        request = jobs_pb2.SubmitJobRequest(id=job, spec_json=spec_json(), priority=priority)
        return (await world.jobs.SubmitJob(request, timeout=CALL_SECONDS)).job

    for job, priority in (("last", -1), ("second", 0), ("third", 0), ("first", 7)):
        assert (await submit(job, priority)).priority == priority
    assert (await submit("last", 9)).priority == -1, "what is there already stays as it is"
    await world.add_agents(2)
    jobs = [await world.until_over(job) for job in ("last", "second", "third", "first")]
    assert {job.state for job in jobs} == {jobs_pb2.JOB_STATE_SUCCEEDED}
    assert [job.id for job in sorted(jobs, key=lambda job: job.started)] == ["first", "second", "third", "last"]


async def test_unknown_job_is_not_found_everywhere(world: Rig) -> None:
    calls = [
        lambda: world.jobs.GetJob(jobs_pb2.GetJobRequest(id="x"), timeout=CALL_SECONDS),
        lambda: world.jobs.CancelJob(jobs_pb2.CancelJobRequest(id="x"), timeout=CALL_SECONDS),
        lambda: world.jobs.ReadLogs(jobs_pb2.ReadLogsRequest(id="../x"), timeout=CALL_SECONDS).read(),
    ]
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await call()
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def read_logs(world: Rig, **wanted: object) -> list[tuple[int, str]]:
    call = world.jobs.ReadLogs(jobs_pb2.ReadLogsRequest(**wanted), timeout=CALL_SECONDS)
    return [(response.worker, response.line) async for response in call]


async def test_read_logs_by_stage_and_tail(world: Rig) -> None:
    await world.add_agents(2)
    job = await world.until_over((await world.submit()).id)
    assert await read_logs(world, id=job.id) == [
        (0, "worker 0 begins"), (0, "second line"), (1, "worker 1 begins"), (1, "second line"),
    ]  # fmt: skip
    assert await read_logs(world, id=job.id, stage=1, tail=1) == [(1, "second line")]
    assert await read_logs(world, id=job.id, tail=0) == []
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await read_logs(world, id=job.id, stage=7)
    assert unknown.value.details() == f"no worker of job {job.id} holds stage 7"


async def test_read_logs_follow_from_the_queue_to_the_end(world: Rig) -> None:
    job = await world.submit()
    following = asyncio.create_task(read_logs(world, id=job.id, follow=True))
    await world.add_agents(2)
    lines = await following
    assert sorted(lines) == [
        (0, "second line"), (0, "worker 0 begins"), (1, "second line"), (1, "worker 1 begins"),
    ]  # fmt: skip


async def metrics(world: Rig) -> list[str]:
    def scrape() -> str:
        with urlopen(f"http://{world.metrics_address}/metrics", timeout=5) as response:
            return str(response.read().decode())

    text = await asyncio.to_thread(scrape)
    return [line for line in text.splitlines() if not line.startswith("#")]


async def test_metrics_series_of_a_run_are_there_while_it_runs_and_then_gone(world: Rig) -> None:
    world.behaviour.hang_at = (1, 3)
    await world.add_agents(2)
    job = await world.submit()
    await world.until(job.id, lambda found: found.step == 2)
    during = await metrics(world)
    label = f'{{run="{job.id}"}}'
    assert f"takt_steps_total{label} 2.0" in during
    assert f"takt_examples_total{label} 16.0" in during
    assert 'takt_jobs{state="RUNNING"} 1.0' in during
    assert 'takt_workers{state="busy"} 2.0' in during
    request = jobs_pb2.CancelJobRequest(id=job.id, grace_seconds=0.1)
    await world.jobs.CancelJob(request, timeout=CALL_SECONDS)
    await world.until_over(job.id)
    after = await metrics(world)
    assert not [line for line in after if job.id in line]
    assert 'takt_jobs{state="CANCELLED"} 1.0' in after
    assert 'takt_workers{state="free"} 2.0' in after
    assert any(line.startswith("takt_rpc_server_handled_total") for line in after)


@pytest.mark.parametrize("embedded", [True, False])
async def test_submit_with_facts_only_an_embedded_coordinator_takes_the_callers_word(
    tmp_path: Path, embedded: bool
) -> None:
    async with rig(tmp_path, embedded=embedded) as world:
        await world.add_agents(2)
        world.agents[0].model_error = world.agents[1].model_error = "asked an agent"
        request = jobs_pb2.SubmitJobRequest(spec_json=spec_json(), model=MODEL_FACTS, data=data_facts(3))
        if embedded:
            job = (await world.jobs.SubmitJob(request, timeout=CALL_SECONDS)).job
            assert (await world.until_over(job.id)).state == jobs_pb2.JOB_STATE_SUCCEEDED
        else:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await world.jobs.SubmitJob(request, timeout=CALL_SECONDS)
            assert "asked an agent" in (refused.value.details() or "")
