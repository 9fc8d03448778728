"""Watching a job until it has ended, and the exit code of its end."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from takt.v1 import jobs_pb2 as pb

from coordinator.cli.client import CallError, Pause
from coordinator.cli.documents import state_name
from coordinator.cli.exits import CliError, ExitCode

EXIT_CODES: Mapping[pb.JobState, ExitCode] = {
    pb.JOB_STATE_SUCCEEDED: ExitCode.SUCCESS,
    pb.JOB_STATE_FAILED: ExitCode.JOB_FAILED,
    pb.JOB_STATE_CANCELLED: ExitCode.JOB_CANCELLED,
}
"""Exit code of each state that a job can end in."""

POLL_SECONDS = 0.5
ABSENCE_SECONDS = 60.0
"""How long a coordinator may be away, for instance to restart, before waiting for it is given up."""


class JobReader(Protocol):
    """Who is asked: a `JobClient`."""

    def job(self, job_id: str) -> pb.Job:
        """Return one job, or raise `CallError`."""


def has_ended(job: pb.Job) -> bool:
    """Whether the job's state is final."""
    return job.state in EXIT_CODES


def outcome_line(job: pb.Job) -> str:
    """Return in one line how a job ended, or how it is."""
    return f"job {job.id} {state_name(job.state)} at step {job.step}: {job.reason}"


def watch(
    reader: JobReader,
    job_id: str,
    *,
    on_change: Callable[[pb.Job], None],
    timeout_seconds: float | None = None,
    pause: Pause = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> pb.Job:
    """Ask for the job until it has ended; show each answer to ``on_change``; return the last one.

    A coordinator that is away is asked again for `ABSENCE_SECONDS`.

    Raises:
        CliError: the job did not end in ``timeout_seconds``; the job goes on.
        CallError: the coordinator stayed away, or answered with an error.
    """
    began = last_answer = now()
    while True:
        try:
            job = reader.job(job_id)
        except CallError as error:
            if not error.is_passing or now() - last_answer > ABSENCE_SECONDS:
                raise
        else:
            last_answer = now()
            on_change(job)
            if has_ended(job):
                return job
        if timeout_seconds is not None and now() - began >= timeout_seconds:
            raise CliError(ExitCode.UNREACHABLE, f"job {job_id} has not ended in {timeout_seconds:g} s; it goes on")
        pause(POLL_SECONDS)
