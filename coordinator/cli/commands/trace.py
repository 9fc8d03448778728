"""takt trace"""

from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.console import print_json, print_line, print_remark
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.folder import job_folder
from coordinator.cli.options import DEFAULT_STATE_DIR, JobId, Output, OutputFormat, StateDir
from coordinator.cli.whole_file import write_file
from coordinator.files import JobFiles
from coordinator.schedule.actions import PlanError
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.plan import Plan
from coordinator.trace.beside import planned_beside
from coordinator.trace.chrome import to_chrome
from coordinator.trace.chrome_reader import TraceError, from_chrome
from coordinator.trace.measured import NoTimesError
from coordinator.trace.picture import NoStepError, to_picture
from coordinator.trace.timeline import Trace

Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FILE", help="File to write: .json for Perfetto and chrome://tracing, .svg a picture."
    ),
]
Step = Annotated[
    int | None,
    typer.Option("--step", min=1, metavar="N", help="Step that the picture shows, else the last one traced."),
]


def command(
    *,
    job_id: JobId,
    out: Out,
    step: Step = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Write the measured timeline of a job's first 5 and last 50 steps, and beside it what its plan promised.

    Each worker has two processes: what it did, and its plan with the times that were measured of its actions. It is
    read from the state folder; no service has to run. While the job runs it is as of half a minute ago.
    """
    if out.suffix not in (".json", ".svg"):
        raise CliError(ExitCode.INVALID, f"--out {out} has to end in .json or .svg")
    if step is not None and out.suffix != ".svg":
        raise CliError(ExitCode.INVALID, f"--step is for a picture, but {out} holds all steps that were traced")
    files = JobFiles(job_folder(state_dir, job_id))
    measured = read_trace(files)
    steps = _steps(measured)
    if not steps:
        raise CliError(ExitCode.NOT_FOUND, f"{files.trace} holds no step; job {job_id} has to do one first")
    shown = None if out.suffix == ".json" else step or steps[-1]
    planned = None
    try:
        planned = planned_beside(measured, plan_of(files, measured), step=shown)
    except NoTimesError as error:
        print_remark(f"notice: the plan is left out: {error}")
    pieces = to_chrome(measured, planned) if shown is None else _picture(measured, planned, shown)
    try:
        write_file(out, pieces)
    except OSError as error:
        raise CliError(ExitCode.INVALID, f"--out {out} cannot be written: {error.strerror}") from error
    if output is OutputFormat.JSON:
        print_json({"id": job_id, "file": str(out.resolve()), "steps": steps, "planned": planned is not None})
    else:
        what = f"{len(steps)} steps" if shown is None else f"step {shown}"
        print_line(f"{out}: {what} of job {job_id}")
    return ExitCode.SUCCESS


def _picture(measured: Trace, planned: Trace | None, step: int) -> list[str]:
    try:
        return [to_picture(measured, first=step, last=step, planned=planned)]
    except NoStepError as error:
        raise CliError(ExitCode.NOT_FOUND, f"{error}") from None


def _steps(measured: Trace) -> list[int]:
    return sorted({span.step for worker in measured.workers for span in worker.spans})


def plan_of(files: JobFiles, measured: Trace) -> Plan:
    """Return the plan that a job ran, of which ``measured`` is.

    Raises:
        CliError: there is none, it is damaged, or it is another job's.
    """
    path = files.folder / "plan.csv"
    text = text_of(path, missing=f"job {files.folder.name} has no {path}; its plan is written when it first starts")
    try:
        plan = make_custom_plan(text, num_workers=None, num_chunks=None, num_microbatches=None)
    except PlanError as error:
        raise CliError(ExitCode.INVALID, f"{path} is no plan: {error}") from None
    count, placement = len(plan.workers), plan.placement
    if any(worker.stages != placement.stages_of(worker.worker % count) for worker in measured.workers):
        raise CliError(ExitCode.INVALID, f"{path} has other stages than {files.trace}; one of the two is another job's")
    return plan


def read_trace(files: JobFiles) -> Trace:
    """Return the measured timeline of a job.

    Raises:
        CliError: there is none, or it is damaged.
    """
    missing = (
        f"job {files.folder.name} has no timeline; "
        "one is written every half minute of training and at its end, none where no step was done, none of predictions"
    )
    try:
        return from_chrome(text_of(files.trace, missing=missing))
    except TraceError as error:
        raise CliError(ExitCode.INVALID, f"{files.trace} {error}") from None


def text_of(path: Path, *, missing: str) -> str:
    """Return the text of a file in a job's folder.

    Raises:
        CliError: there is none, which ``missing`` says; or it is no text.
    """
    try:
        return path.read_text()
    except FileNotFoundError:
        raise CliError(ExitCode.NOT_FOUND, missing) from None
    except UnicodeDecodeError as error:
        raise CliError(ExitCode.INVALID, f"{path} is not UTF-8 text: {error.reason}") from None
