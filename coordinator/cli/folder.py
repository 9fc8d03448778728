"""The state folder, read where no coordinator answers."""

import re
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from takt.v1 import jobs_pb2 as pb

from coordinator.cli.exits import CliError, ExitCode
from coordinator.encode import encode_job, encode_page
from coordinator.listing import Listing
from coordinator.records import JobView
from coordinator.store import FILE_NAME, Store

_WORKER_LOG = re.compile(r"worker-(\d+)\.log")


def job_folder(state_dir: Path, job_id: str) -> Path:
    """Return the folder of a job.

    Raises:
        CliError: there is none.
    """
    folder = state_dir / "jobs" / job_id
    # An id is one folder name, never a path that leads elsewhere.
    if Path(job_id).name != job_id or not folder.is_dir():
        raise CliError(ExitCode.NOT_FOUND, f"there is no job {job_id} in {state_dir}; see 'takt list'")
    return folder


class JobFolder:
    """Jobs as a coordinator left them in its state folder, or as one that is running writes them."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    @classmethod
    def find(cls, state_dir: Path) -> "JobFolder | None":
        """Return the folder if a coordinator has ever kept jobs in it."""
        return cls(state_dir) if (state_dir / FILE_NAME).is_file() else None

    def has(self, job_id: str) -> bool:
        """Whether it knows the job."""
        return self._view(job_id) is not None

    def job(self, job_id: str) -> pb.Job:
        """Return one job with its workers and history.

        Raises:
            CliError: there is none.
        """
        view = self._view(job_id)
        if view is None:
            raise CliError(ExitCode.NOT_FOUND, f"there is no job {job_id} in {self._state_dir}; see 'takt list'")
        return encode_job(view)

    def jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        """Return one page of jobs, the newest first, without workers and history.

        Raises:
            ListingError: there is no such page.
        """
        with closing(Store.open_read_only(self._state_dir)) as store:
            return encode_page(*store.page(Listing.of(request)))

    def logs(self, job_id: str, *, stage: int | None, tail: int | None) -> Iterator[pb.ReadLogsResponse]:
        """Yield the log lines that are there.

        Raises:
            CliError: there is no such job, or none of its workers holds ``stage``.
        """
        job = self.job(job_id)
        wanted = {worker.worker for worker in job.workers if stage is None or stage in worker.stages}
        if stage is not None and not wanted:
            raise CliError(ExitCode.NOT_FOUND, f"no worker of job {job_id} holds stage {stage}")
        logs = (job_folder(self._state_dir, job_id) / "logs").glob("worker-*.log")
        by_worker = {int(match[1]): path for path in logs if (match := _WORKER_LOG.fullmatch(path.name))}
        for worker, path in sorted(by_worker.items()):
            if stage is None or worker in wanted:
                with path.open(errors="replace") as file:
                    for line in file if tail is None else deque(file, maxlen=tail):
                        yield pb.ReadLogsResponse(worker=worker, line=line.rstrip("\n"))

    def _view(self, job_id: str) -> JobView | None:
        with closing(Store.open_read_only(self._state_dir)) as store:
            return store.view(job_id)
