"""Where a command reads about jobs: a coordinator, or the state folder where none answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import grpc
from takt.rpc.errors import UnreachableError
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.client import CallError, JobClient, connect
from coordinator.cli.folder import JobFolder
from coordinator.cli.options import DEFAULT_COORDINATOR, DEFAULT_STATE_DIR
from coordinator.ownership import address_of_holder


class JobSource(Protocol):
    """Reads about jobs; `JobClient` and `JobFolder` are such."""

    def job(self, job_id: str) -> pb.Job:
        """Return one job with its workers and history."""

    def jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        """Return one page of jobs, the newest first."""

    def logs(self, job_id: str, *, stage: int | None, tail: int | None) -> Iterator[pb.ReadLogsResponse]:
        """Yield log lines of a job's workers."""


@contextmanager
def open_source(*, coordinator: str | None, state_dir: Path, job_id: str | None = None) -> Iterator[JobSource]:
    """Open the coordinator that was named; where none was, the local one, else the state folder.

    Where a state folder was named that holds jobs, the local one is the coordinator that serves this folder, if
    any does. The folder also serves where the local coordinator does not know ``job_id`` but the folder does: a
    job of `takt run` has a coordinator of its own.

    Raises:
        UnreachableError: the coordinator does not answer, and there is no folder in its place.
    """
    if coordinator is not None:
        with connect(coordinator) as client:
            yield client
        return
    folder = JobFolder.find(state_dir)
    try:
        is_named = folder is not None and state_dir != DEFAULT_STATE_DIR
        local = _of_folder(state_dir) if is_named else connect(DEFAULT_COORDINATOR, patience_seconds=0)
    except UnreachableError as error:
        if folder is None:
            raise UnreachableError(f"{error}; and {state_dir} is no state folder (--state-dir)") from error
        yield folder
        return
    with local:
        use_folder = folder is not None and job_id is not None and not _knows(local, job_id) and folder.has(job_id)
        yield folder if folder is not None and use_folder else local


def _of_folder(state_dir: Path) -> JobClient:
    address = address_of_holder(state_dir)
    if address is None or ":" not in address:
        raise UnreachableError(f"no coordinator serves {state_dir}")
    return connect(address, patience_seconds=0)


def _knows(client: JobClient, job_id: str) -> bool:
    try:
        client.job(job_id)
    except CallError as error:
        return error.code is not grpc.StatusCode.NOT_FOUND
    return True
