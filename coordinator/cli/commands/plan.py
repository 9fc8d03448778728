"""takt plan"""

import json
from pathlib import Path
from typing import Annotated

import typer

from coordinator.candidates import MAX_CHUNKS, Candidate
from coordinator.choice import Comparison, compare_sizes
from coordinator.choice import compare as compare_layouts
from coordinator.cli.compare_view import show_comparison
from coordinator.cli.console import print_json, print_line, stdout
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.options import Output, OutputFormat, Settings
from coordinator.cli.plan_shape import CUSTOM, Shape, refusal
from coordinator.cli.plan_view import Shown, fold, is_drawn, plan_lines, plan_record, plan_title, plan_trace
from coordinator.cli.preflight import check_job, look_at, print_notices
from coordinator.cli.whole_file import write_file
from coordinator.planning import JobPlan
from coordinator.pricing import Basis, basis_of, given_costs, known_costs, rows_of
from coordinator.problem import SpecError
from coordinator.schedule.draw import draw
from coordinator.schedule.limits import SizeError
from coordinator.schedule.plan import Schedule
from coordinator.schedule.simulate import Costs, simulate
from coordinator.schedule.svg import to_svg
from coordinator.schedule.text import to_csv
from coordinator.validation import check_facts

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
CostsFile = Annotated[
    Path | None, typer.Option("--costs", metavar="FILE", help="Lengths in seconds, by what `takt profile` measured.")
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Rank all schedules, chunk and microbatch counts by the length of a step.")
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
    costs: CostsFile = None,
    compare: Compare = False,
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
    if job_file is None and (settings or costs is not None):
        name = "--set changes" if settings else "--costs tells of the model of"
        raise CliError(ExitCode.INVALID, f"{name} a job file, and none was given")
    if compare:
        if csv or svg or perfetto:
            raise CliError(ExitCode.INVALID, "--compare makes many plans; leave --csv, --svg and --perfetto out")
        if job_file is None:
            show_comparison(_compared_sizes(shape, comm=comm), None, output=output)
        else:
            spec, model, data = look_at(job_file, _overrides(settings, shape, costs), with_parts=True)
            if problems := check_facts(spec, model, data):
                raise SpecError(problems)
            known = known_costs(spec, model)
            _check_comm(basis_of(known), comm)
            show_comparison(compare_layouts(spec, model, known, comm=comm), spec, output=output)
        return ExitCode.SUCCESS
    if job_file is not None:
        shown = _of_job(check_job(job_file, _overrides(settings, shape, costs), with_parts=True), comm=comm)
    else:
        plan = shape.plan()
        print_notices(plan)
        shown = Shown(plan=plan, timeline=simulate(plan, Costs(comm=comm)), comm=comm)
    _show(shown, csv=csv, svg=svg, perfetto=perfetto, with_orders=orders, output=output)
    return ExitCode.SUCCESS


def _overrides(settings: list[str] | None, shape: Shape, costs: Path | None) -> list[str]:
    """Return the options as overrides of a job file."""
    measured = [] if costs is None else [f"parallel.costs={json.dumps(str(costs))}"]
    return [*(settings or []), *shape.settings(), *measured]


def _check_comm(basis: Basis, comm: float) -> None:
    if comm and basis is not Basis.UNITS:
        message = "--comm is in forwards, but this is predicted by costs in seconds; leave it out"
        raise CliError(ExitCode.INVALID, message)


def _of_job(job: JobPlan, *, comm: float) -> Shown:
    _check_comm(job.basis, comm)
    timeline = job.prediction if comm == 0 else simulate(job.train, Costs(comm=comm), job.recompute)
    costs = given_costs(job.spec, job.model)
    if costs is not None:
        comm = costs.transfer.seconds(rows_of(job.spec))
    return Shown(
        plan=job.train,
        timeline=timeline,
        recompute=job.recompute,
        partition=job.partition,
        choice=job.choice,
        memory=job.memory,
        basis=job.basis,
        comm=comm,
    )


def _compared_sizes(shape: Shape, *, comm: float) -> Comparison:
    for name, value in (("--group-size", shape.group_size), ("--warmup", shape.warmup), ("--file", shape.file)):
        if value is not None:
            raise CliError(ExitCode.INVALID, f"{name} is given, but --compare has it only of a job file; leave it out")
    counts = shape.counts()
    own = Candidate(
        schedule=shape.schedule or Schedule.ONE_F_ONE_B,
        num_chunks=counts["--chunks"] if shape.schedule else 1,
        num_microbatches=counts["--microbatches"],
    )
    max_chunks = MAX_CHUNKS if shape.chunks is None else min(shape.chunks, MAX_CHUNKS)
    try:
        return compare_sizes(own, num_workers=counts["--stages"], max_chunks=max_chunks, comm=comm)
    except SizeError as error:
        raise refusal(error) from None


def _show(
    shown: Shown,
    *,
    csv: Path | None,
    svg: Path | None,
    perfetto: Path | None,
    with_orders: bool,
    output: OutputFormat,
) -> None:
    plan, timeline = shown.plan, shown.timeline
    if csv is not None:
        _write("--csv", csv, to_csv(plan.workers))
    if svg is not None:
        _write("--svg", svg, to_svg(timeline, plan.placement, title=plan_title(plan, shown.recompute)))
    if perfetto is not None:
        _write("--perfetto", perfetto, plan_trace(shown))
    if output is OutputFormat.JSON:
        print_json(plan_record(shown, with_orders=with_orders))
        return
    for line in plan_lines(shown):
        print_line(line)
    if is_drawn(timeline):
        console, grid = stdout(), draw(timeline)
        print_line("")
        print_line((fold(grid, width=console.width) if console.is_terminal else grid).rstrip("\n"))


def _write(option: str, path: Path, text: str) -> None:
    try:
        write_file(path, [text])
    except OSError as error:
        raise CliError(ExitCode.INVALID, f"{option} {path} cannot be written: {error.strerror}") from error
