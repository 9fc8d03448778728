"""Agents whose streams break under a run, and that come back or do not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from coordinator_rig import Rig, rig, spec_json
from takt.v1 import jobs_pb2

from coordinator import agents

pytestmark = pytest.mark.timeout(60)

LEASE_SECONDS = 1.0


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(agents, "LEASE_SECONDS", LEASE_SECONDS)
    async with rig(tmp_path) as running:
        yield running


async def begun(world: Rig, *, num_steps: int) -> str:
    """Bring a job of two workers to its first step; return its id."""
    await world.add_agents(2)
    job = await world.submit(spec_json(train={"max_steps": num_steps}))
    await world.until(job.id, lambda found: found.step >= 1)
    return job.id


async def test_agents_that_come_back_with_their_executors_cost_the_job_nothing(world: Rig) -> None:
    job = await begun(world, num_steps=800)
    for agent in world.agents:
        await agent.redial(after_seconds=LEASE_SECONDS / 4)
    assert [(slot.state, slot.job, slot.worker) for slot in await world.slots()] == [("busy", job, 0), ("busy", job, 1)]
    ended = await world.until_over(job)
    assert (ended.state, ended.step, ended.attempt) == (jobs_pb2.JOB_STATE_SUCCEEDED, 800, 1)
    assert [slot.state for slot in await world.slots()] == ["free", "free"]


async def test_agent_that_does_not_come_back_within_its_lease_fails_the_job(world: Rig) -> None:
    world.behaviour.hang_at = (1, 3)
    job = await begun(world, num_steps=9)
    await world.agents[1].vanish()
    ended = await world.until_over(job)
    assert (ended.state, ended.error.type, ended.error.worker) == (jobs_pb2.JOB_STATE_FAILED, "lost", 1)
    expected = "the agent of worker 1 (stage 1) on 127.0.0.1 was lost: its stream broke and it was not back within"
    assert ended.reason.startswith(expected)
    assert [slot.state for slot in await world.slots()] == ["free", "lost"]


async def test_agent_that_comes_back_too_late_is_told_to_end_its_executor(world: Rig) -> None:
    world.behaviour.hang_at = (1, 3)
    job = await begun(world, num_steps=9)
    await world.agents[1].redial(after_seconds=LEASE_SECONDS + 1.5)
    ended = await world.until_over(job)
    assert ended.error.type == "lost"
    assert [(release.job, release.attempt) for release in world.agents[1].released] == [(job, 1)]

    async def states() -> list[str]:
        return [slot.state for slot in await world.slots()]

    async with asyncio.timeout(10):
        while await states() != ["free", "free"]:  # noqa: ASYNC110  it changes at the other end of a wire
            await asyncio.sleep(0.02)
