"""Executors' streams are cut at every kind of message, both ways: nothing is lost, and nothing is done twice.

A job of 3 steps on two workers, which evaluates after step 2 and after step 3 and saves after step 3, runs through a
relay that cuts one stream at one message. What it leaves behind must be what a job leaves that nothing happens to.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from coordinator_rig import Rig, rig, spec_json
from linked_executor import LinkedExecutor
from relay import Cut, Relay
from takt.rpc.server import serve
from takt.v1 import jobs_pb2, workers_pb2_grpc

from stage_worker import executor_link
from stage_worker.engine.commands import Op

pytestmark = pytest.mark.timeout(120)

EVERY_KIND = [
    Cut(0, "hello"),
    Cut(0, "store_opened"),
    Cut(1, "rendezvous"),
    Cut(0, "ready"),
    Cut(1, "commands", 1),  # step 1
    Cut(1, "commands", 4),  # the second step of the evaluation of step 2
    Cut(0, "commands", 6),  # the checkpoint
    Cut(0, "commands", 9),  # the end
    Cut(1, "step", 1),
    Cut(0, "step", 2),
    Cut(1, "rows", 1),
    Cut(1, "step", 4),  # of the evaluation
    Cut(0, "saved"),
    Cut(1, "step", 7),  # the last one
]
"""Cuts instead of a message; each is made after it too."""


class Job:
    """What is left of a job, and what its executors did."""

    def __init__(self, folder: Path, executors: list[LinkedExecutor]) -> None:
        lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        self.steps = [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]
        evaluations = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
        self.evaluations = [{k: v for k, v in line.items() if "time" not in k} for line in evaluations]
        self.shards = {
            manifest.parent.name: json.loads(manifest.read_text())["shards"]
            for manifest in sorted(folder.glob("checkpoints/*/manifest.json"))
        }
        self.done = {executor.worker: executor.done for executor in executors}


class World:
    """A coordinator behind a relay."""

    def __init__(self, rig: Rig, relay: Relay, address: str) -> None:
        self.rig, self.relay = rig, relay
        self.executors: list[LinkedExecutor] = []
        self._num_jobs = 0

        def make_executor(_: str, *rest: Any) -> LinkedExecutor:
            self.executors.append(LinkedExecutor(address, *rest))
            return self.executors[-1]

        rig.behaviour.make_executor = make_executor

    async def run(self, cut: Cut | None = None, *, copies: int = 1) -> Job:
        """Run a job to its end."""
        self.relay.begin(cut, copies=copies)
        self.executors.clear()
        self._num_jobs += 1
        name = f"job-{self._num_jobs}"
        text = spec_json(eval={"every_steps": 2, "batch_size": 3})
        await self.rig.submit(text, job=name)
        job = await self.rig.until_over(name)
        assert job.state == jobs_pb2.JOB_STATE_SUCCEEDED, (cut, job.reason)
        assert self.relay.cut is None, f"nothing was cut: {cut}"
        assert self.relay.num_streams == (2 if cut is None else 3), cut
        return Job(self.rig.state_dir / "jobs" / name, self.executors)


async def made(state_dir: Path, monkeypatch: pytest.MonkeyPatch, *, strict: bool) -> AsyncIterator[World]:
    monkeypatch.setattr(executor_link, "REDIAL_SECONDS", 0.05)
    async with rig(state_dir, strict=strict) as coordinator:
        relay = Relay(coordinator.address)
        server = await serve(
            "127.0.0.1:0",
            add=lambda added: workers_pb2_grpc.add_WorkerServiceServicer_to_server(relay, added),
            services=(),
            status={},
        )
        world = World(coordinator, relay, server.address)
        await coordinator.add_agents(2)
        yield world
        await server.stop(0)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async for each in made(tmp_path, monkeypatch, strict=False):
        yield each


@pytest.fixture
async def strict_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async for each in made(tmp_path, monkeypatch, strict=True):
        yield each


def check(job: Job, calm: Job, cut: Cut | None) -> None:
    """Hold a job against one that nothing happened to."""
    assert [step["step"] for step in job.steps] == [1, 2, 3], cut
    assert job.steps == calm.steps, cut
    assert job.evaluations == calm.evaluations, cut
    assert job.shards == calm.shards, cut
    for worker in (0, 1):
        assert [seq for seq, _ in job.done[worker]] == list(range(1, len(calm.done[worker]) + 1)), cut
    assert job.done == calm.done, cut


async def test_cut_at_any_message_changes_nothing_of_what_is_done_and_kept(world: World) -> None:
    calm = await world.run()
    assert len(calm.evaluations) == 2
    assert list(calm.shards) == ["step-3"]
    for cut in EVERY_KIND:
        for passes in (False, True):
            chosen = Cut(cut.worker, cut.kind, cut.nth, passes)
            check(await world.run(chosen), calm, chosen)


async def test_messages_that_come_twice_change_nothing(world: World) -> None:
    calm = await world.run()
    check(await world.run(copies=2), calm, None)


async def test_h91_lost_reply_of_a_command_leaves_its_second_delivery_without_effect(strict_world: World) -> None:
    """Strict: every command has its reply. The one of a backward, and of an optimizer step, is lost, or comes."""
    calm = await strict_world.run()
    commands = calm.done[1]
    for op in (Op.BACKWARD, Op.STEP):
        seq = next(seq for seq, done in commands if done is op)
        for kind in ("commands", "done"):
            for passes in (False, True):
                cut = Cut(1, kind, seq, passes)
                check(await strict_world.run(cut), calm, cut)
