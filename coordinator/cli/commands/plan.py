"""takt plan"""

from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.console import print_json, print_line, stdout
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.options import Output, OutputFormat, Settings
from coordinator.cli.plan_view import fold, plan_lines, plan_record
from coordinator.cli.preflight import check_job
from coordinator.schedule.draw import draw
from coordinator.schedule.plan import Plan, Schedule, make_plan
from coordinator.schedule.simulate import Costs, simulate
from coordinator.schedule.text import to_csv

JobFile = Annotated[Path | None, typer.Argument(metavar="JOB.yaml", help="Plan of this job, as `validate` checks it.")]
ScheduleName = Annotated[str | None, typer.Option("--schedule", metavar="NAME", help=f"One of {', '.join(Schedule)}.")]
Stages = Annotated[int | None, typer.Option("--stages", metavar="P", help="Pipeline stages, one a worker.")]
Chunks = Annotated[int | None, typer.Option("--chunks", metavar="V", help="Model chunks a worker.")]
Microbatches = Annotated[int | None, typer.Option("--microbatches", metavar="M", help="Microbatches of one step.")]
Comm = Annotated[float, typer.Option("--comm", metavar="UNITS", help="What one transfer takes; a forward takes 1.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the plan, one line a worker.")]
Orders = Annotated[bool, typer.Option("--orders/--no-orders", help="Whether JSON holds the orders.")]

_DEFAULT_MICROBATCHES = 8
_MAX_CELLS = 2**20
"""Stages x chunks x microbatches that are still planned in seconds."""


def command(
    *,
    job_file: JobFile = None,
    schedule: ScheduleName = None,
    stages: Stages = None,
    chunks: Chunks = None,
    microbatches: Microbatches = None,
    settings: Settings = None,
    comm: Comm = 0.0,
    csv: Csv = None,
    orders: Orders = True,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Compile, check and draw a plan; predict its length, bubble and activations in flight. Nothing is started.

    Either for JOB.yaml, or for --stages P with --schedule (1f1b), --chunks (1) and --microbatches (8).
    Lengths are in forwards of one stage: a forward takes 1, a backward 2, a transfer 0 or --comm.
    """
    shape = {"--schedule": schedule, "--stages": stages, "--chunks": chunks, "--microbatches": microbatches}
    if job_file is not None:
        given = [name for name, value in shape.items() if value is not None]
        if given:
            message = f"{given[0]} does not go with a job file; change the job with --set, or leave the file out"
            raise CliError(ExitCode.INVALID, message)
        plan = check_job(job_file, settings or []).train
    elif stages is None:
        raise CliError(ExitCode.INVALID, "there is nothing to plan; give a job file, or --stages P")
    elif settings:
        raise CliError(ExitCode.INVALID, "--set changes a job file, and none was given")
    else:
        plan = _plan_of_shape(
            Schedule.ONE_F_ONE_B if schedule is None else schedule,
            stages=stages,
            chunks=1 if chunks is None else chunks,
            microbatches=_DEFAULT_MICROBATCHES if microbatches is None else microbatches,
        )
    _show(plan, comm=comm, csv=csv, with_orders=orders, output=output)
    return ExitCode.SUCCESS


def _plan_of_shape(schedule: str, *, stages: int, chunks: int, microbatches: int) -> Plan:
    counts = {"--stages": stages, "--chunks": chunks, "--microbatches": microbatches}
    for name, count in counts.items():
        if count < 1:
            raise CliError(ExitCode.INVALID, f"{name} is {count}, need at least 1")
    cells = stages * chunks * microbatches
    if cells > _MAX_CELLS:
        message = f"{' x '.join(counts)} is {cells}, at most {_MAX_CELLS} are planned; choose fewer"
        raise CliError(ExitCode.INVALID, message)
    return make_plan(schedule, num_workers=stages, num_chunks=chunks, num_microbatches=microbatches)


def _show(plan: Plan, *, comm: float, csv: Path | None, with_orders: bool, output: OutputFormat) -> None:
    timeline = simulate(plan, Costs(comm=comm))
    if csv is not None:
        try:
            csv.write_text(to_csv(plan.workers))
        except OSError as error:
            raise CliError(ExitCode.INVALID, f"--csv {csv} cannot be written: {error.strerror}") from error
    if output is OutputFormat.JSON:
        print_json(plan_record(plan, timeline, with_orders=with_orders))
        return
    for line in plan_lines(plan, timeline, comm=comm):
        print_line(line)
    console, grid = stdout(), draw(timeline)
    print_line("")
    print_line((fold(grid, width=console.width) if console.is_terminal else grid).rstrip("\n"))
