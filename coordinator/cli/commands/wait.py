"""takt wait"""

from typing import Annotated

import typer

from coordinator.cli.client import JobClient
from coordinator.cli.console import print_json, print_line
from coordinator.cli.documents import job_record
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.options import DEFAULT_STATE_DIR, Coordinator, JobId, Output, OutputFormat, StateDir
from coordinator.cli.outcome import EXIT_CODES, has_ended, outcome_line, watch
from coordinator.cli.source import open_source

Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Give up after this long, with exit code 5."),
]


def command(
    *,
    job_id: JobId,
    timeout: Timeout = None,
    coordinator: Coordinator = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Wait until a job has ended; exit with its code: 0 SUCCEEDED, 1 FAILED, 7 CANCELLED.

    A coordinator that goes away is waited for, for one minute.
    """
    with open_source(coordinator=coordinator, state_dir=state_dir, job_id=job_id) as source:
        if isinstance(source, JobClient):
            job = watch(source, job_id, on_change=lambda _: None, timeout_seconds=timeout)
        else:
            job = source.job(job_id)
    if not has_ended(job):
        raise CliError(
            ExitCode.UNREACHABLE,
            f"{outcome_line(job)}, says {state_dir}, but no coordinator answers; name it with --coordinator",
        )
    if output is OutputFormat.JSON:
        print_json(job_record(job))
    else:
        print_line(outcome_line(job))
    return EXIT_CODES[job.state]
