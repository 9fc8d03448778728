"""The gRPC face of jobs: decodes, asks, encodes."""

import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from takt.rpc.errors import StatusTable, TaktError
from takt.v1 import jobs_pb2 as pb
from takt.v1 import jobs_pb2_grpc as pb_grpc

from coordinator.agents import Agents
from coordinator.encode import encode_job, encode_page, encode_slot
from coordinator.facts import DataFacts, ModelFacts
from coordinator.files import JobFiles
from coordinator.inspection import Facts
from coordinator.job_id import JobIdError
from coordinator.jobs import JobConflictError, JobNotFoundError, Jobs
from coordinator.listing import Listing, ListingError
from coordinator.logs import read_logs
from coordinator.problem import SpecError
from coordinator.runs import Runs

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["JobService"].full_name
REPLY_SECONDS = 5.0
"""Of a caller's deadline, what is kept for queueing and answering once a job was looked at."""

Context = grpc.aio.ServicerContext[Any, Any]


class NoSuchStageError(TaktError):
    """No worker of the job holds the stage."""


STATUS: StatusTable = {
    SpecError: grpc.StatusCode.INVALID_ARGUMENT,  # the job cannot run as it is written
    JobIdError: grpc.StatusCode.INVALID_ARGUMENT,
    JobNotFoundError: grpc.StatusCode.NOT_FOUND,
    NoSuchStageError: grpc.StatusCode.NOT_FOUND,
    JobConflictError: grpc.StatusCode.ALREADY_EXISTS,
    ListingError: grpc.StatusCode.INVALID_ARGUMENT,
}


class JobServicer(pb_grpc.JobServiceServicer):
    """Serves one `Jobs`."""

    def __init__(self, *, jobs: Jobs, agents: Agents, runs: Runs, files: JobFiles) -> None:
        """Serve ``jobs``; ``files`` is the folder that job folders lie in."""
        self._jobs = jobs
        self._agents = agents
        self._runs = runs
        self._files = files

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:  # noqa: N802
        """Check a job and queue it."""
        limit_seconds = max(0.0, (context.time_remaining() or 0.0) - REPLY_SECONDS)
        facts = None
        if request.HasField("model") and request.HasField("data"):
            facts = Facts(ModelFacts.of(request.model), DataFacts.of(request.data))
        view = await self._jobs.submit(
            request.id, request.spec_json, limit_seconds=limit_seconds, priority=request.priority, facts=facts
        )
        return pb.SubmitJobResponse(job=encode_job(view))

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:  # noqa: N802
        """Tell about one job."""
        return pb.GetJobResponse(job=encode_job(await self._jobs.view(request.id)))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:  # noqa: N802
        """Tell about the jobs of one page."""
        return encode_page(*await self._jobs.page(Listing.of(request)))

    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.CancelJobResponse:  # noqa: N802
        """Ask a job to end."""
        view = await self._jobs.cancel(request.id, grace_seconds=request.grace_seconds)
        return pb.CancelJobResponse(job=encode_job(view))

    async def ReadLogs(self, request: pb.ReadLogsRequest, context: Context) -> AsyncIterator[pb.ReadLogsResponse]:  # noqa: N802
        """Stream log lines."""
        stage = request.stage if request.HasField("stage") else None

        async def workers() -> list[int]:
            view = await self._jobs.view(request.id)
            held = [worker.worker for worker in view.workers if stage is None or stage in worker.stages]
            if view.workers and not held:
                raise NoSuchStageError(f"no worker of job {request.id} holds stage {stage}")
            return held

        async def is_over() -> bool:
            return (await self._jobs.view(request.id)).record.state.is_final

        await self._jobs.view(request.id)
        lines = read_logs(
            self._files.folder / request.id / "logs",
            workers,
            tail=request.tail if request.HasField("tail") else None,
            positions={position.worker: position.offset for position in request.positions},
            is_over=is_over if request.follow else None,
        )
        async for worker, line in lines:
            yield pb.ReadLogsResponse(worker=worker, line=line.text, end=line.end)

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersResponse:  # noqa: N802
        """Tell about all slots."""
        to_unix_seconds = time.time() - time.monotonic()
        slots = []
        for slot in self._agents.membership.slots:
            runner = self._runs.get(slot.job)
            worker = None if runner is None or slot.worker is None else runner.workers[slot.worker]
            slots.append(encode_slot(slot, heard_at_unix=slot.heard_at + to_unix_seconds, worker=worker))
        return pb.ListWorkersResponse(slots=slots)
