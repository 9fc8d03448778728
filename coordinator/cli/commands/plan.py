"""takt plan"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.console import print_json, print_line, stdout
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.options import Output, OutputFormat, Settings
from coordinator.cli.plan_shape import CUSTOM, Shape
from coordinator.cli.plan_view import fold, is_drawn, plan_lines, plan_record, plan_title, plan_trace
from coordinator.cli.preflight import check_job, print_notices
from coordinator.partition import StageSlice
from coordinator.schedule.draw import draw
from coordinator.schedule.plan import Plan, Schedule
from coordinator.schedule.recompute import Recompute
from coordinator.schedule.simulate import Costs, simulate
from coordinator.schedule.svg import to_svg
from coordinator.schedule.text import to_csv

JobFile = Annotated[Path | None, typer.Argument(metavar="JOB.yaml", help="Plan of this job, as `validate` checks it.")]
ScheduleName = Annotated[
    str | None, typer.Option("--schedule", metavar="NAME", help=f"One of {', '.join(Schedule)}, {CUSTOM}.")
]
Stages = Annotated[int | None, typer.Option("--stages", metavar="P", help="Workers of the pipeline.")]
Chunks = Annotated[int | None, typer.Option("--chunks", metavar="V", help="Model chunks a worker.")]
Microbatches = Annotated[int | None, typer.Option("--microbatches", metavar="M", help="Microbatches of one step.")]
GroupSize = Annotated[
    int | None, typer.Option("--group-size", metavar="N", help="interleaved: microbatches that pass a chunk together.")
]
Warmup = Annotated[
    str | None,
    typer.Option("--warmup", metavar="LIST", help="1f1b: forwards before the first backward, 3,2,1,0; or eager."),
]
PlanFile = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="custom: the plan, one line a worker.")]
Comm = Annotated[
    float, typer.Option("--comm", metavar="SECONDS", help="What one transfer takes, where a forward takes 1.")
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the plan, one line a worker.")]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture of the plan, to scale.")]
Perfetto = Annotated[
    Path | None, typer.Option("--perfetto", metavar="FILE", help="Write the plan as a trace that Perfetto opens.")
]
Orders = Annotated[bool, typer.Option("--orders/--no-orders", help="Whether JSON holds the orders.")]


def command(
    *,
    job_file: JobFile = None,
    schedule: ScheduleName = None,
    stages: Stages = None,
    chunks: Chunks = None,
    microbatches: Microbatches = None,
    group_size: GroupSize = None,
    warmup: Warmup = None,
    file: PlanFile = None,
    settings: Settings = None,
    comm: Comm = 0.0,
    csv: Csv = None,
    svg: Svg = None,
    perfetto: Perfetto = None,
    orders: Orders = True,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Compile, check and draw a plan; predict its length, bubble and activations in flight. Nothing is started.

    Either for JOB.yaml, whose schedule the options then override; or for --stages P with --schedule (1f1b),
    --chunks (1) and --microbatches (8); or for --file PLAN.csv, which says all of these itself.
    Lengths are in forwards of one full stage: a forward takes 1, a backward 2, a transfer 0 or --comm; a chunk
    takes its share of that. What the job's train.recompute computes again makes backwards longer, by 1 for a whole
    stage.
    """
    shape = Shape(
        schedule=schedule,
        stages=stages,
        chunks=chunks,
        microbatches=microbatches,
        group_size=group_size,
        warmup=warmup,
        file=file,
    )
    costs = Costs(comm=comm)
    recompute = partition = None
    if job_file is not None:
        job = check_job(job_file, [*(settings or []), *shape.settings()])
        plan, recompute, partition = job.train, job.recompute, job.partition
    elif settings:
        raise CliError(ExitCode.INVALID, "--set changes a job file, and none was given")
    else:
        plan = shape.plan()
        print_notices(plan)
    _show(
        plan,
        costs,
        recompute,
        partition=partition,
        csv=csv,
        svg=svg,
        perfetto=perfetto,
        with_orders=orders,
        output=output,
    )
    return ExitCode.SUCCESS


def _show(
    plan: Plan,
    costs: Costs,
    recompute: Recompute | None,
    *,
    partition: Sequence[StageSlice] | None,
    csv: Path | None,
    svg: Path | None,
    perfetto: Path | None,
    with_orders: bool,
    output: OutputFormat,
) -> None:
    timeline = simulate(plan, costs, recompute)
    if csv is not None:
        _write("--csv", csv, to_csv(plan.workers))
    if svg is not None:
        _write("--svg", svg, to_svg(timeline, plan.placement, title=plan_title(plan, recompute)))
    if perfetto is not None:
        _write("--perfetto", perfetto, plan_trace(plan, timeline, comm=costs.comm))
    if output is OutputFormat.JSON:
        print_json(plan_record(plan, timeline, recompute, partition=partition, with_orders=with_orders))
        return
    for line in plan_lines(plan, timeline, recompute, partition=partition, comm=costs.comm):
        print_line(line)
    if is_drawn(plan, timeline):
        console, grid = stdout(), draw(timeline)
        print_line("")
        print_line((fold(grid, width=console.width) if console.is_terminal else grid).rstrip("\n"))


def _write(option: str, path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise CliError(ExitCode.INVALID, f"{option} {path} cannot be written: {error.strerror}") from error
