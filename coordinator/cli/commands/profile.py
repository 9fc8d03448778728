"""takt profile"""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.client import connect
from coordinator.cli.commands.predict import At
from coordinator.cli.console import print_json, print_line, stderr
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.here import run_all_here
from coordinator.cli.options import DEFAULT_STATE_DIR, JobFile, Output, OutputFormat, Settings, StateDir
from coordinator.cli.outcome import EXIT_CODES, outcome_line, watch
from coordinator.cli.whole_file import write_file
from coordinator.costs import CostModel, PartCosts, to_document
from coordinator.facts import DataFacts, ModelFacts
from coordinator.files import JobFiles
from coordinator.jobfile import load_job
from coordinator.local_facts import local_facts
from coordinator.planning import JobPlan, plan_job
from coordinator.profile_fit import MeasuredRun, fitted_costs
from coordinator.profile_runs import NUM_STEPS, ProfileRun, profile_runs
from coordinator.spec import to_json
from coordinator.trace.chrome_reader import TraceError, from_chrome
from coordinator.trace.measured import NoTimesError, measured_costs
from coordinator.trace.timeline import Trace, Track

Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="File of costs to write.")]


def command(
    *,
    job_file: JobFile,
    out: Out,
    settings: Settings = None,
    coordinator: At = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Measure what the parts of a job's model cost, with all of its stages at work at once.

    The job is run six times for 10 steps, half of them with split backwards, some with microbatches of another size:
    on this machine, or at the coordinator that is named, whose state folder this one must be able to read
    (--state-dir). FILE is what `takt plan --costs` and the job key parallel.costs take.
    """
    _check_writable(out)
    spec = load_job(job_file, settings or [])
    model, data = local_facts(spec, with_parts=True)
    if model.parts is None:
        raise CliError(ExitCode.INVALID, "nothing is known of the parts of this model, so they cannot be told apart")
    runs = profile_runs(spec, model)
    plans = [_planned(run, model, data) for run in runs]
    with _carried_out(plans, coordinator=coordinator, state_dir=state_dir.resolve()) as (traces, device):
        measured = [_measured(run, trace) for run, trace in zip(runs, traces, strict=True)]
    costs = fitted_costs(
        measured,
        model.parts,
        dp=spec.parallel.dp,
        device=device,
        optimizer=spec.train.optimizer,
        precision=spec.train.precision,
    )
    _write(out, costs)
    if output is OutputFormat.JSON:
        print_json(to_document(costs))
    else:
        for line in _lines(costs):
            print_line(line)
        print_line(f"{out}: costs of {spec.name}; see them in use with takt plan {job_file} --costs {out} --compare")
    return ExitCode.SUCCESS


def _check_writable(out: Path) -> None:
    """Refuse, before minutes of runs, what could not be written after them."""
    folder = out.resolve().parent
    if not folder.is_dir():
        raise CliError(ExitCode.INVALID, f"--out {out} cannot be written: there is no folder {folder}")
    if out.is_dir():
        raise CliError(ExitCode.INVALID, f"--out {out} cannot be written: it is a folder; name a file")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise CliError(ExitCode.INVALID, f"--out {out} cannot be written: permission denied")


def _planned(run: ProfileRun, model: ModelFacts, data: DataFacts) -> JobPlan:
    batch = run.spec.train.global_batch_size
    train = data.split("train")
    if train is None or train.num_rows < batch:
        there = 0 if train is None else train.num_rows
        raise CliError(
            ExitCode.INVALID, f"the profile needs {batch} training rows a step, but there are {there}; use more rows"
        )
    own = replace(data, steps_per_epoch=train.num_rows // batch, total_steps=NUM_STEPS)
    return plan_job(run.spec, model=model, data=own)


@contextmanager
def _carried_out(
    plans: Sequence[JobPlan], *, coordinator: str | None, state_dir: Path
) -> Iterator[tuple[list[Trace], str]]:
    """Yield the trace of each run, once all have ended, and the kind of device that they ran on."""
    if coordinator is not None:
        with connect(coordinator) as client:
            jobs = []
            for plan in plans:
                jobs.append(watch(client, client.submit(to_json(plan.spec), job_id=None).id, on_change=lambda _: None))
                check_ended(jobs[-1])
            kinds = {slot.device.partition(":")[0] for slot in client.workers()}
        yield [_trace_of(job, state_dir) for job in jobs], "/".join(sorted(kinds))
        return
    with tempfile.TemporaryDirectory(prefix="takt-profile-") as folder:
        jobs = []
        for job in run_all_here(plans, state_dir=Path(folder), console=stderr()):
            check_ended(job)
            jobs.append(job)
        yield [_trace_of(job, Path(folder)) for job in jobs], "cpu"


def check_ended(job: pb.Job) -> None:
    """Return if a run has succeeded.

    Raises:
        CliError: It has not; with the code that `takt wait` has for it.
    """
    if job.state != pb.JOB_STATE_SUCCEEDED:
        code = EXIT_CODES.get(job.state, ExitCode.JOB_FAILED)
        raise CliError(code, f"a run of the profile did not end well: {outcome_line(job)}")


def _trace_of(job: pb.Job, state_dir: Path) -> Trace:
    path = JobFiles.of(state_dir, job.id).trace
    try:
        return from_chrome(path.read_text())
    except FileNotFoundError:
        raise CliError(
            ExitCode.NOT_FOUND, f"job {job.id} left no {path}; name its coordinator's state folder with --state-dir"
        ) from None
    except TraceError as error:
        raise CliError(ExitCode.INVALID, f"{path} {error}") from None


def _measured(run: ProfileRun, trace: Trace) -> MeasuredRun:
    spans = [span for worker in trace.workers for span in worker.spans if span.track is Track.SEND]
    sent = [span.num_bytes for span in spans if span.num_bytes is not None]
    try:
        costs = measured_costs(trace)
    except NoTimesError as error:
        raise CliError(ExitCode.INVALID, str(error)) from None
    return MeasuredRun(
        rows=run.rows,
        layers=run.layers,
        held=tuple((stage,) for stage in range(len(run.layers))),
        costs=costs,
        width=run.spec.data.max_length,
        message_bytes=mean(sent) if sent else 0.0,
    )


def _write(out: Path, costs: CostModel) -> None:
    try:
        write_file(out, [json.dumps(to_document(costs), indent=1, allow_nan=False), "\n"])
    except OSError as error:
        raise CliError(ExitCode.INVALID, f"--out {out} cannot be written: {error.strerror}") from error


def _lines(costs: CostModel) -> Iterator[str]:
    yield f"{'milliseconds of a microbatch':<30}{'F':>9}{'B':>9}{'I':>9}{'W':>9}{'update a step':>15}"
    for name, part in (("embeddings", costs.embeddings), ("a layer", costs.layers[0]), ("head", costs.head)):
        for index, rows in enumerate(costs.rows):
            update = f"{part.optimizer_seconds * 1e3:15.3f}" if index == 0 else ""
            yield f"{f'{name}, {rows} rows':<30}{_milliseconds(part, index)}{update}"
    yield f"{'between two actions':<30}{costs.action_seconds * 1e3:9.3f}"
    message = costs.transfer.latency_seconds + costs.transfer.seconds_per_byte * 2**20
    yield f"{'a message of 1 MiB':<30}{message * 1e3:9.3f}"
    yield f"{'first backward, longer by':<30}{costs.first_backward_seconds * 1e3:9.3f}"
    yield f"{'end of a step':<30}{costs.step_seconds * 1e3:9.3f}"


def _milliseconds(part: PartCosts, index: int) -> str:
    tables = (part.forward_seconds, part.backward_seconds, part.input_gradient_seconds, part.weight_gradient_seconds)
    return "".join(f"{table[index] * 1e3:9.3f}" for table in tables)
