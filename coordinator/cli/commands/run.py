"""takt run"""

import os
from pathlib import Path
from typing import Annotated

import typer
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.attended import Attendant, InterruptedByUserError
from coordinator.cli.client import connect
from coordinator.cli.console import print_json, print_line, stderr, stdout
from coordinator.cli.documents import job_record
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.interrupts import Interrupts
from coordinator.cli.local import local_supervisor, start_services
from coordinator.cli.options import DEFAULT_STATE_DIR, JobFile, NewJobId, Output, OutputFormat, Settings, StateDir
from coordinator.cli.outcome import EXIT_CODES, has_ended
from coordinator.cli.preflight import check_job
from coordinator.cli.progress import open_progress
from coordinator.cli.summary import read_evaluations, summary_lines
from coordinator.job_id import check_job_id
from coordinator.spec import to_json

Strict = Annotated[
    bool, typer.Option("--strict", help="Send one command at a time; for debugging, slower, same numbers.")
]
STOP_SECONDS = 1.5
"""What each of agents, coordinator and data service gets to stop. Three times this, `CANCEL_SECONDS` and two
calls of `CALL_SECONDS` stay below the ten seconds in which everything is gone after Ctrl-C."""
CALL_SECONDS = 1.0
"""Deadline of a call to our own coordinator; one that is missed is made again."""


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
    num_workers = plan.topology.num_workers
    state_dir = state_dir.resolve()
    with Interrupts() as interrupts:
        supervisor = local_supervisor(state_dir, interrupts)
        try:
            console.print(f"starting {num_workers} workers; service logs in {supervisor.log_dir}", soft_wrap=True)
            address, _ = start_services(
                supervisor, state_dir=state_dir, num_workers=num_workers, strict=strict, embedded=True
            )
            attendant = Attendant(interrupts, tend=supervisor.tend)
            with connect(address, call_seconds=CALL_SECONDS) as client:
                job = client.submit(
                    to_json(plan.spec),
                    job_id=job_id,
                    model=plan.model.message(),
                    data=plan.data.message(),
                    pause=attendant.pause,
                )
                with open_progress(console) as progress:
                    job = attendant.follow(client, job.id, show=progress.show)
        except InterruptedByUserError:
            raise CliError(ExitCode.JOB_CANCELLED, "interrupted before the job was submitted") from None
        finally:
            supervisor.stop(grace_seconds=STOP_SECONDS, should_kill=lambda: interrupts.count > 1)
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
