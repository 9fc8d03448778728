"""A JobService in memory, for tests of the command line."""

# ruff: noqa: N802  (gRPC names the methods)

from collections.abc import Iterator

import grpc
from takt.v1 import jobs_pb2 as pb
from takt.v1 import jobs_pb2_grpc as pb_grpc


class Jobs(pb_grpc.JobServiceServicer):
    """Jobs in memory; one ends when it has been looked at `looks_left` times, or never where that is below 0."""

    def __init__(self) -> None:
        self.jobs: dict[str, pb.Job] = {}
        self.specs: dict[str, str] = {}
        self.end_state = pb.JOB_STATE_SUCCEEDED
        self.looks_left = 1
        self.failing: dict[str, grpc.StatusCode] = {}
        self.deadlines: dict[str, float | None] = {}
        self.slots: list[pb.Slot] = []
        self.priorities: dict[str, int] = {}
        self.log_requests: list[pb.ReadLogsRequest] = []

    def SubmitJob(self, request: pb.SubmitJobRequest, context: grpc.ServicerContext) -> pb.SubmitJobResponse:
        self._enter("SubmitJob", context)
        job_id = request.id or "demo-1"
        if self.specs.setdefault(job_id, request.spec_json) != request.spec_json:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"job {job_id} exists with another spec; choose another --id")
        self.priorities[job_id] = request.priority
        job = self.jobs.setdefault(job_id, pb.Job(id=job_id, name="demo", state=pb.JOB_STATE_QUEUED, created=1.0))
        return pb.SubmitJobResponse(job=job)

    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.GetJobResponse:
        self._enter("GetJob", context)
        job = self._find(request.id, context)
        if self.looks_left == 0:
            job.state = self.end_state
        self.looks_left -= 1
        return pb.GetJobResponse(job=job)

    def ListJobs(self, request: pb.ListJobsRequest, context: grpc.ServicerContext) -> pb.ListJobsResponse:
        self._enter("ListJobs", context)
        return pb.ListJobsResponse(jobs=self.jobs.values())

    def CancelJob(self, request: pb.CancelJobRequest, context: grpc.ServicerContext) -> pb.CancelJobResponse:
        self._enter("CancelJob", context)
        job = self._find(request.id, context)
        job.state, job.reason = pb.JOB_STATE_CANCELLING, "asked to end"
        return pb.CancelJobResponse(job=job)

    def ReadLogs(self, request: pb.ReadLogsRequest, context: grpc.ServicerContext) -> Iterator[pb.ReadLogsResponse]:
        self._find(request.id, context)
        self.log_requests.append(request)
        yield pb.ReadLogsResponse(worker=0, line="first")
        yield pb.ReadLogsResponse(worker=1, line="second [bold]")

    def ListWorkers(self, request: pb.ListWorkersRequest, context: grpc.ServicerContext) -> pb.ListWorkersResponse:
        self._enter("ListWorkers", context)
        return pb.ListWorkersResponse(slots=self.slots)

    def _enter(self, method: str, context: grpc.ServicerContext) -> None:
        self.deadlines[method] = context.time_remaining()
        if method in self.failing:
            context.abort(self.failing[method], f"{method} is made to fail")

    def _find(self, job_id: str, context: grpc.ServicerContext) -> pb.Job:
        if job_id not in self.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no job {job_id}")
        return self.jobs[job_id]
