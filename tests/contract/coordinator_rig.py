"""A coordinator on port 0, with fakes around it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from coordinator_fakes import NUM_MICROBATCHES, Behaviour, FakeAgent, FakeData, Transcript
from takt.rpc.client import aio_channel
from takt.rpc.server import RunningServer, serve
from takt.v1 import data_pb2_grpc, jobs_pb2, jobs_pb2_grpc, workers_pb2_grpc

from coordinator.ownership import Ownership
from coordinator.service import Coordinator, Settings
from coordinator.spec import parse_spec, to_json

CALL_SECONDS = 10.0


def spec_json(name: str = "tiny", **sections: dict[str, Any]) -> str:
    """Return a job of 3 steps on two stages."""
    document: dict[str, Any] = {
        "name": name,
        "model": {"config": {"model_type": "bert"}},
        "data": {"task": "demo", "record_rows": True},
        "parallel": {"pp": 2},
        "schedule": {"name": "1f1b", "num_microbatches": NUM_MICROBATCHES},
        "train": {"global_batch_size": 8, "max_steps": 3},
        "eval": {"batch_size": 3},
        "limits": {"max_restarts": 0},
    }
    for key, values in sections.items():
        document[key] = {**document.get(key, {}), **values}
    return to_json(parse_spec(document))


class Rig:
    """A coordinator, a fake data service, and as many fake agents as a test wants."""

    def __init__(self, state_dir: Path, coordinator: Coordinator, address: str, metrics_address: str, data: FakeData):
        self.state_dir = state_dir
        self.coordinator = coordinator
        self.address = address
        self.metrics_address = metrics_address
        self.data = data
        self.behaviour = Behaviour()
        self.transcript = Transcript()
        self.agents: list[FakeAgent] = []
        self._channel = aio_channel(address)
        self.jobs = jobs_pb2_grpc.JobServiceStub(self._channel)
        self.workers = workers_pb2_grpc.WorkerServiceStub(self._channel)

    async def add_agents(self, count: int) -> None:
        """Start agents on the next slots; return when all were welcomed."""
        for _ in range(count):
            agent = FakeAgent(
                self.address,
                self.state_dir,
                slot=len(self.agents),
                behaviour=self.behaviour,
                transcript=self.transcript,
            )
            self.agents.append(agent)
        await asyncio.gather(*(agent.welcomed.wait() for agent in self.agents))

    async def submit(self, text: str | None = None, *, job: str = "") -> jobs_pb2.Job:
        """Submit a job."""
        request = jobs_pb2.SubmitJobRequest(id=job, spec_json=spec_json() if text is None else text)
        response: jobs_pb2.SubmitJobResponse = await self.jobs.SubmitJob(request, timeout=CALL_SECONDS)
        return response.job

    async def job(self, job: str) -> jobs_pb2.Job:
        """Look at a job."""
        response: jobs_pb2.GetJobResponse = await self.jobs.GetJob(jobs_pb2.GetJobRequest(id=job), timeout=CALL_SECONDS)
        return response.job

    async def until(self, job: str, holds: Callable[[jobs_pb2.Job], bool]) -> jobs_pb2.Job:
        """Poll a job until ``holds``."""
        async with asyncio.timeout(15):
            while not holds(found := await self.job(job)):  # noqa: ASYNC110  # it changes at the other end of a wire
                await asyncio.sleep(0.02)
        return found

    async def until_over(self, job: str) -> jobs_pb2.Job:
        """Poll a job until it has ended."""
        return await self.until(job, lambda found: found.state >= jobs_pb2.JOB_STATE_SUCCEEDED)

    async def slots(self) -> list[jobs_pb2.Slot]:
        """List the slots."""
        response: jobs_pb2.ListWorkersResponse = await self.jobs.ListWorkers(
            jobs_pb2.ListWorkersRequest(), timeout=CALL_SECONDS
        )
        return list(response.slots)

    async def close(self) -> None:
        """End agents, coordinator and channels."""
        for agent in self.agents:
            await agent.vanish()
        await self.coordinator.stop("the test is over")
        await self._channel.close()


@contextlib.asynccontextmanager
async def rig(state_dir: Path, *, strict: bool = False, embedded: bool = False) -> AsyncIterator[Rig]:
    """Run a coordinator on port 0 with a fake data service."""
    data = FakeData()
    data_server: RunningServer = await serve(
        "127.0.0.1:0",
        add=lambda server: data_pb2_grpc.add_DataServiceServicer_to_server(data, server),
        services=("takt.v1.DataService",),
        status={},
    )
    ownership = Ownership.claim(state_dir, embedded=embedded)
    settings = Settings(
        listen="127.0.0.1:0",
        state_dir=state_dir,
        data_service=data_server.address,
        metrics_port=0,
        strict=strict,
        credit=2,
        embedded=embedded,
        insecure=False,
    )
    coordinator = Coordinator(settings, ownership)
    running = Rig(state_dir, coordinator, *await coordinator.start(), data)
    try:
        yield running
    finally:
        await running.close()
        ownership.release()
        await data_server.stop(0)
