"""takt logs"""

from typing import Annotated

import typer

from coordinator.cli.client import JobClient
from coordinator.cli.console import print_json, print_line
from coordinator.cli.exits import ExitCode
from coordinator.cli.following import follow_logs
from coordinator.cli.options import DEFAULT_STATE_DIR, Coordinator, JobId, Output, OutputFormat, StateDir
from coordinator.cli.source import open_source

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")]
Stage = Annotated[int | None, typer.Option("--stage", min=0, metavar="S", help="Only workers that hold this stage.")]
Tail = Annotated[int | None, typer.Option("--tail", min=0, metavar="N", help="Only the last N lines of each worker.")]


def command(
    *,
    job_id: JobId,
    follow: Follow = False,
    stage: Stage = None,
    tail: Tail = None,
    coordinator: Coordinator = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Print the log lines of a job's workers, each with its worker in front.

    With --follow, a coordinator that goes away is waited for, for one minute; no line is lost or printed twice.
    Without --coordinator, and where none answers on this machine, the state folder is read.
    """
    with open_source(coordinator=coordinator, state_dir=state_dir, job_id=job_id) as source:
        if follow and isinstance(source, JobClient):
            lines = follow_logs(source, job_id, stage=stage, tail=tail)
        else:
            lines = source.logs(job_id, stage=stage, tail=tail)
        if output is OutputFormat.JSON:
            print_json({"lines": [{"worker": line.worker, "line": line.line} for line in lines]})
        else:
            for line in lines:
                print_line(f"worker {line.worker} | {line.line}")
    return ExitCode.SUCCESS
