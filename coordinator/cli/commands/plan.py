"""takt plan"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.console import print_json, print_line, stdout
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.options import Output, OutputFormat, Settings
from coordinator.cli.plan_view import fold, is_drawn, plan_lines, plan_record, plan_title, plan_trace
from coordinator.cli.preflight import check_job, print_notices
from coordinator.jobfile import read_plan
from coordinator.partition import StageSlice
from coordinator.problem import SpecError
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.draw import draw
from coordinator.schedule.limits import SizeError
from coordinator.schedule.plan import Plan, Schedule, make_plan
from coordinator.schedule.recompute import Recompute
from coordinator.schedule.simulate import Costs, simulate
from coordinator.schedule.svg import to_svg
from coordinator.schedule.text import to_csv

CUSTOM = "custom"

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

_OPTION_BY_SIZE = {
    "num_chunks": "--chunks",
    "num_microbatches": "--microbatches",
    "group_size": "--group-size",
    "warmup": "--warmup",
}
"""What a user of this command calls the size that a schedule cannot run."""
_DEFAULT_MICROBATCHES = 8
_MAX_CELLS = 2**20
"""Stages x chunks x microbatches that are still planned in two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What the options say of a plan; None where they say nothing."""

    schedule: str | None
    stages: int | None
    chunks: int | None
    microbatches: int | None
    group_size: int | None
    warmup: str | None
    file: Path | None

    @property
    def schedule_name(self) -> str | None:
        """The schedule; a plan's file needs no word that it is a custom one."""
        return CUSTOM if self.schedule is None and self.file is not None else self.schedule

    def settings(self) -> list[str]:
        """Return the options as overrides of a job file."""
        values = {
            "schedule.name": self.schedule_name,
            "parallel.pp": self.stages,
            "schedule.num_chunks": self.chunks,
            "schedule.num_microbatches": self.microbatches,
            "schedule.group_size": self.group_size,
            "schedule.warmup": None if self.warmup is None else _warmup(self.warmup),
            "schedule.file": None if self.file is None else str(self.file),
        }
        return [f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None]


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
    shape = _Shape(
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
        try:
            plan = _plan_of_file(shape) if shape.schedule_name == CUSTOM else _plan_of_shape(shape)
        except SizeError as error:
            message = _OPTION_BY_SIZE[error.option] + str(error).removeprefix(error.option)
            raise CliError(ExitCode.INVALID, message) from None
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


def _plan_of_file(shape: _Shape) -> Plan:
    if shape.file is None:
        raise CliError(ExitCode.INVALID, f"--schedule {CUSTOM} needs a plan; give it with --file")
    for name, value in (("--group-size", shape.group_size), ("--warmup", shape.warmup)):
        if value is not None:
            raise CliError(ExitCode.INVALID, f"{name} is given, but {CUSTOM} takes its order from the file")
    try:
        text = read_plan(shape.file)
    except SpecError as error:
        raise CliError(ExitCode.INVALID, f"--file {error.problems[0].message}") from None
    return make_custom_plan(
        text, num_workers=shape.stages, num_chunks=shape.chunks, num_microbatches=shape.microbatches
    )


def _plan_of_shape(shape: _Shape) -> Plan:
    if shape.file is not None:
        message = f"--file holds a {CUSTOM} plan, but --schedule is {shape.schedule}; leave one of the two out"
        raise CliError(ExitCode.INVALID, message)
    if shape.stages is None:
        raise CliError(ExitCode.INVALID, "there is nothing to plan; give a job file, or --stages P, or --file PLAN.csv")
    counts = {
        "--stages": shape.stages,
        "--chunks": 1 if shape.chunks is None else shape.chunks,
        "--microbatches": _DEFAULT_MICROBATCHES if shape.microbatches is None else shape.microbatches,
    }
    cells = 1
    for name, count in counts.items():
        if count < 1:
            raise CliError(ExitCode.INVALID, f"{name} is {count}, need at least 1")
        cells *= count
    if cells > _MAX_CELLS:
        message = f"{' x '.join(counts)} is {cells}, at most {_MAX_CELLS} are planned; choose fewer"
        raise CliError(ExitCode.INVALID, message)
    return make_plan(
        Schedule.ONE_F_ONE_B if shape.schedule is None else shape.schedule,
        num_workers=counts["--stages"],
        num_chunks=counts["--chunks"],
        num_microbatches=counts["--microbatches"],
        group_size=shape.group_size,
        warmup=None if shape.warmup is None else _warmup(shape.warmup),
    )


def _warmup(text: str) -> str | list[int]:
    """Return the numbers of a list such as ``3,2,1,0``; a single word is a name, for others to judge."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        if text.isalpha():
            return text
        message = f"--warmup is {text!r}, needs eager, or a number a stage such as 3,2,1,0"
        raise CliError(ExitCode.INVALID, message) from None


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
