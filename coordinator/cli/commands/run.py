"""takt run"""

import os
from pathlib import Path
from typing import Annotated

import typer
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.compare_view import choice_text
from coordinator.cli.console import print_json, print_line, stderr, stdout
from coordinator.cli.documents import job_record
from coordinator.cli.exits import ExitCode
from coordinator.cli.here import run_here
from coordinator.cli.options import DEFAULT_STATE_DIR, JobFile, NewJobId, Output, OutputFormat, Settings, StateDir
from coordinator.cli.outcome import EXIT_CODES, has_ended
from coordinator.cli.preflight import check_job
from coordinator.cli.summary import read_evaluations, summary_lines
from coordinator.job_id import check_job_id

Strict = Annotated[
    bool, typer.Option("--strict", help="Send one command at a time; for debugging, slower, same numbers.")
]


def command(
    *,
    job_file: JobFile,
    job_id: NewJobId = None,
    settings: Settings = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    strict: Strict = False,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Train a job on this machine: start everything, show progress, stop everything.

    Exits with the job's code: 0 SUCCEEDED, 1 FAILED, 7 CANCELLED. The first Ctrl-C (or SIGTERM) cancels the
    job and stops everything within 10 s, a second one kills at once. The job's files are in
    STATE_DIR/jobs/ID/, the logs of the services in STATE_DIR/services/.
    """
    console = stderr() if output is OutputFormat.JSON else stdout()
    if job_id is not None:
        check_job_id(job_id)
    if console.is_terminal:
        console.print(f"checking {job_file}", soft_wrap=True)
    plan = check_job(job_file, settings or [])
    if plan.choice is not None:
        console.print(f"schedule: {choice_text(plan.choice)}", soft_wrap=True)
    state_dir = state_dir.resolve()
    job = run_here(plan, job_id=job_id, state_dir=state_dir, strict=strict, console=console)
    _tell(job, state_dir=state_dir, output=output)
    return EXIT_CODES.get(job.state, ExitCode.JOB_CANCELLED)


def _tell(job: pb.Job, *, state_dir: Path, output: OutputFormat) -> None:
    folder = state_dir / "jobs" / job.id
    if output is OutputFormat.JSON:
        print_json({**job_record(job), "evaluations": read_evaluations(folder), "folder": os.fspath(folder)})
    elif has_ended(job):
        for line in summary_lines(job, folder=folder):
            print_line(line)
    else:
        print_line(f"job {job.id} was stopped before its end; files: {folder}")
