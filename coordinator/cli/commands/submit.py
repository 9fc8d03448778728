"""takt submit"""

from typing import Annotated

import typer

from coordinator.choices import ScheduleName
from coordinator.cli.client import connect
from coordinator.cli.console import print_json, print_line, print_remark
from coordinator.cli.exits import ExitCode
from coordinator.cli.following import follow_logs
from coordinator.cli.options import (
    DEFAULT_COORDINATOR,
    Coordinator,
    JobFile,
    NewJobId,
    Output,
    OutputFormat,
    Settings,
)
from coordinator.cli.outcome import EXIT_CODES, outcome_line, watch
from coordinator.cli.preflight import print_notices
from coordinator.job_id import check_job_id
from coordinator.jobfile import load_job
from coordinator.layout import train_plan
from coordinator.spec import to_json

Wait = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended; exit with its code.")]
Follow = Annotated[bool, typer.Option("--follow", help="As --wait, with the workers' log lines on stderr.")]

Priority = Annotated[
    int,
    typer.Option(
        "--priority",
        min=-(2**31),
        max=2**31 - 1,
        metavar="N",
        help="Place in the queue: the higher goes first, equal ones in the order they came.",
    ),
]


def command(
    *,
    job_file: JobFile,
    job_id: NewJobId = None,
    settings: Settings = None,
    priority: Priority = 0,
    wait: Wait = False,
    follow: Follow = False,
    coordinator: Coordinator = None,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Give a job to a coordinator; print its id, and nothing else, on stdout.

    The same --id with an equal job answers the same job, which goes on from its last checkpoint where it had failed
    or was cancelled; with another job it is a conflict (exit code 4).
    Another --priority changes nothing: the first one stays.
    """
    if job_id is not None:
        check_job_id(job_id)
    spec = load_job(job_file, settings or [])
    if spec.schedule.name is not ScheduleName.AUTO:
        print_notices(train_plan(spec))
    with connect(coordinator or DEFAULT_COORDINATOR) as client:
        job = client.submit(to_json(spec), job_id=job_id, priority=priority)
        if output is OutputFormat.JSON:
            print_json({"id": job.id})
        else:
            print_line(job.id)
        if not (wait or follow):
            return ExitCode.SUCCESS
        for line in follow_logs(client, job.id, stage=None, tail=None) if follow else ():
            print_remark(f"worker {line.worker} | {line.line}")
        job = watch(client, job.id, on_change=lambda _: None)
    print_remark(outcome_line(job))
    return EXIT_CODES[job.state]
