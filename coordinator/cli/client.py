"""Calls to a coordinator's JobService, with a deadline each."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import grpc
from takt.rpc.client import channel
from takt.rpc.errors import UnreachableError
from takt.v1 import data_pb2, workers_pb2
from takt.v1 import jobs_pb2 as pb
from takt.v1 import jobs_pb2_grpc as pb_grpc

from coordinator.cli.exits import CliError, ExitCode

CALL_SECONDS = 10.0
SUBMIT_SECONDS = 120.0
"""A submit waits for an agent and the data service to look at the model and the data."""
LOGS_SECONDS = 60.0
PATIENCE_SECONDS = 3.0
"""How long a coordinator that was named may stay silent before it counts as unreachable."""
_PROBE_SECONDS = 1.0
_TICK_SECONDS = 0.05
_IDEMPOTENT = [f"takt.v1.JobService/{name}" for name in ("SubmitJob", "GetJob", "ListJobs", "CancelJob", "ListWorkers")]


Pause = Callable[[float], object]
"""Waits that many seconds, or less."""


class CallError(Exception):
    """A call that the coordinator, or the way to it, answered with an error."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_passing(self) -> bool:
        """Whether the same call may succeed once the coordinator is back."""
        return self.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def connect(
    address: str, *, patience_seconds: float = PATIENCE_SECONDS, call_seconds: float = CALL_SECONDS
) -> "JobClient":
    """Return a client of the coordinator at ``address`` (host:port) whose quick calls take ``call_seconds`` at most.

    Raises:
        UnreachableError: nothing listens there within ``patience_seconds``.
        CliError: the address is malformed.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        message = f"--coordinator is {address!r}, need HOST:PORT with a port from 1 to 65535"
        raise CliError(ExitCode.INVALID, message)
    target = (host.removeprefix("[").removesuffix("]"), int(port))
    give_up = time.monotonic() + patience_seconds
    while True:
        try:
            socket.create_connection(target, timeout=_PROBE_SECONDS).close()
        except OSError as error:
            if time.monotonic() >= give_up:
                raise UnreachableError(
                    f"no coordinator answers at {address} ({error.strerror or error}); "
                    "start one with 'takt up', or name another with --coordinator"
                ) from error
            time.sleep(0.1)
        else:
            return JobClient(channel(address, idempotent=_IDEMPOTENT), address=address, call_seconds=call_seconds)


class JobClient:
    """One coordinator, as users see it.

    Every method raises `CallError` where the call fails.
    """

    def __init__(self, open_channel: grpc.Channel, *, address: str, call_seconds: float = CALL_SECONDS) -> None:
        self.address = address
        self._call_seconds = call_seconds
        self._channel = open_channel
        self._stub = pb_grpc.JobServiceStub(open_channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def submit(
        self,
        spec_json: str,
        *,
        job_id: str | None,
        priority: int = 0,
        model: workers_pb2.ModelFacts | None = None,
        data: data_pb2.DataFacts | None = None,
        pause: Pause = time.sleep,
    ) -> pb.Job:
        """Queue a job.

        The call takes seconds where the coordinator has to look at model and data itself.

        Args:
            spec_json: the resolved spec.
            job_id: None lets the coordinator make one up.
            priority: its place in the queue, the higher first.
            model: what was found out about the model; only a coordinator of our own takes our word.
            data: the same about the data.
            pause: called meanwhile; what it raises ends the call.
        """
        request = pb.SubmitJobRequest(id=job_id or "", spec_json=spec_json, model=model, data=data, priority=priority)
        call = self._stub.SubmitJob.future(request, timeout=SUBMIT_SECONDS)
        try:
            while not call.done():
                pause(_TICK_SECONDS)
            response: pb.SubmitJobResponse = call.result()
        except grpc.RpcError as error:
            raise self._translate(error) from error
        finally:
            call.cancel()
        return response.job

    def job(self, job_id: str) -> pb.Job:
        """Return one job with its workers and history."""
        response: pb.GetJobResponse = self._call(self._stub.GetJob, pb.GetJobRequest(id=job_id))
        return response.job

    def jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        """Return one page of jobs, the newest first, without workers and history."""
        response: pb.ListJobsResponse = self._call(self._stub.ListJobs, request)
        return response

    def cancel(self, job_id: str, *, grace_seconds: float = 0.0) -> pb.Job:
        """Ask a job to end at a step boundary, and to be killed after ``grace_seconds`` (0: the service's 15)."""
        request = pb.CancelJobRequest(id=job_id, grace_seconds=grace_seconds)
        response: pb.CancelJobResponse = self._call(self._stub.CancelJob, request)
        return response.job

    def logs(
        self,
        job_id: str,
        *,
        stage: int | None,
        tail: int | None,
        follow: bool = False,
        positions: Mapping[int, int] | None = None,
    ) -> Iterator[pb.ReadLogsResponse]:
        """Yield log lines of a job's workers.

        Args:
            job_id: whose workers.
            stage: only workers that hold this one.
            tail: only the last lines of each.
            follow: whether to go on until the job has ended.
            positions: bytes of a worker's log after which to go on, whatever ``tail`` says.
        """
        places = [pb.LogPosition(worker=worker, offset=offset) for worker, offset in (positions or {}).items()]
        request = pb.ReadLogsRequest(id=job_id, stage=stage, tail=tail, follow=follow, positions=places)
        try:
            yield from self._stub.ReadLogs(request, timeout=None if follow else LOGS_SECONDS)
        except grpc.RpcError as error:
            raise self._translate(error) from error

    def workers(self) -> list[pb.Slot]:
        """Return the slots that are known, by (host, slot)."""
        response: pb.ListWorkersResponse = self._call(self._stub.ListWorkers, pb.ListWorkersRequest())
        return list(response.slots)

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=self._call_seconds)
        except grpc.RpcError as error:
            raise self._translate(error) from error

    def _translate(self, error: grpc.RpcError) -> CallError:
        """Return what to raise for ``error``; where the way is the trouble, the text names the address."""
        code, text = error.code(), error.details() or ""
        match code:
            case grpc.StatusCode.UNAVAILABLE:
                text = f"the coordinator at {self.address} went away or is no coordinator: {text}"
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                text = f"the coordinator at {self.address} did not answer in time; look at its log, then try again"
            case grpc.StatusCode.UNIMPLEMENTED:
                text = f"what listens at {self.address} is no Takt coordinator, or an older one: {text}"
        return CallError(code, text or code.name)
