"""takt explain"""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from coordinator.advice import Change, changes
from coordinator.candidates import settings
from coordinator.choice import compare
from coordinator.cli.commands.trace import plan_of, read_trace, text_of
from coordinator.cli.console import print_json, print_line
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.folder import job_folder
from coordinator.cli.options import DEFAULT_STATE_DIR, JobId, Output, OutputFormat, StateDir
from coordinator.costs import CostModel
from coordinator.facts import ModelFacts
from coordinator.files import JobFiles
from coordinator.layout import lay_out
from coordinator.local_facts import local_facts
from coordinator.pricing import known_costs, rows_of
from coordinator.problem import SpecError
from coordinator.profile_fit import MeasuredRun, fitted_costs
from coordinator.schedule.plan import Plan
from coordinator.spec import JobSpec, from_json
from coordinator.trace.expected import expected_timeline
from coordinator.trace.measured import MeasuredCosts, NoTimesError, measured_costs
from coordinator.trace.shares import CAUSES, Shares, shares_of
from coordinator.trace.timeline import Trace, Track

_MOST_CHANGES = 3
_NAMES = {"step": "update"}


def command(*, job_id: JobId, state_dir: StateDir = DEFAULT_STATE_DIR, output: Output = OutputFormat.TABLE) -> ExitCode:
    """Tell where each worker's time went, against the plan, and which single changes would bring most.

    It is read from the timeline in the state folder, of a job that has ended or as of half a minute ago of one that
    runs. What changes would bring is predicted with the costs that the run itself had; the model and the data have
    to be where the job found them.
    """
    files = JobFiles(job_folder(state_dir, job_id))
    path = files.folder / "spec.json"
    spec = from_json(text_of(path, missing=f"job {job_id} has no {path}, so nothing is known of it"))
    trace = read_trace(files)
    plan = plan_of(files, trace)
    try:
        costs = measured_costs(trace)
        expected = expected_timeline(plan, costs)
    except NoTimesError as error:
        raise CliError(ExitCode.INVALID, f"job {job_id} cannot be explained: {error}") from None
    shares = shares_of(trace, expected)
    found, reason = _advised(spec, plan, trace, costs)
    if output is OutputFormat.JSON:
        print_json(_record(job_id, shares, costs, expected.makespan, expected.ideal, found, reason, spec))
        return ExitCode.SUCCESS
    print_line(f"job {job_id}: {trace.schedule}, {len(trace.workers)} workers")
    print_line(f"a step  {costs.step:.4f} s measured")
    print_line(f"        {expected.makespan:.4f} s by the plan, with the times that were measured of its actions")
    print_line(f"        {expected.ideal:.4f} s if the busiest worker never waited")
    print_line("")
    for line in _table(shares):
        print_line(line)
    print_line("")
    for line in _told(found, reason, spec):
        print_line(line)
    return ExitCode.SUCCESS


def _advised(spec: JobSpec, plan: Plan, trace: Trace, costs: MeasuredCosts) -> tuple[Sequence[Change], str | None]:
    """Return what to change, and where nothing can be said why."""
    try:
        model, _ = local_facts(spec, with_parts=True)
        layers = tuple(
            piece.num_layers for piece in lay_out(_planned(spec, plan), model, known_costs(spec, model)).partition
        )
        return changes(compare(spec, model, _costs(spec, plan, trace, costs, model, layers)))[:_MOST_CHANGES], None
    except SpecError as error:
        return (), f"{error}"
    except ValueError as error:
        return (), f"{error}"


def _planned(spec: JobSpec, plan: Plan) -> JobSpec:
    """Return the job with the stages of the plan that ran, should it have left its schedule open."""
    schedule = spec.schedule.model_copy(update={"num_chunks": plan.placement.num_chunks})
    return spec.model_copy(update={"schedule": schedule})


def _costs(
    spec: JobSpec, plan: Plan, trace: Trace, costs: MeasuredCosts, model: ModelFacts, layers: tuple[int, ...]
) -> CostModel:
    assert model.parts is not None, "they were asked for"
    sent = [s.num_bytes for w in trace.workers for s in w.spans if s.track is Track.SEND and s.num_bytes is not None]
    placement = plan.placement
    run = MeasuredRun(
        rows=max(1, round(rows_of(spec))),
        layers=layers,
        held=tuple(placement.stages_of(worker) for worker in range(placement.num_workers)),
        costs=costs,
        width=spec.data.max_length,
        message_bytes=mean(sent) if sent else 0.0,
    )
    return fitted_costs(
        [run],
        model.parts,
        dp=spec.parallel.dp,
        device="as it ran",
        optimizer=spec.train.optimizer,
        precision=spec.train.precision,
    )


def _table(shares: Sequence[Shares]) -> Iterator[str]:
    ops = [name for name in ("F", "B", "I", "W", "step") if any(name in each.busy for each in shares)]
    causes = [cause for cause in CAUSES if any(each.idle[cause] >= 0.0005 * each.step for each in shares)]
    heads = [*(_NAMES.get(op, op) for op in ops), "busy", "(plan)", *causes]
    yield "share of a step" + "".join(f"{head:>12}" for head in heads)
    for each in shares:
        values = [*(each.busy.get(op, 0.0) / each.step for op in ops), each.busy_share, each.planned_busy]
        values += [each.idle[cause] / each.step for cause in causes]
        yield f"worker {each.worker:<8}" + "".join(f"{value:>12.1%}" for value in values)


def _told(found: Sequence[Change], reason: str | None, spec: JobSpec) -> Iterator[str]:
    if reason is not None:
        yield f"what to change is not known: {reason}"
        return
    if not found:
        yield "no single change of schedule, microbatches or partition is predicted to bring 1 % or more"
        return
    yield "what would bring most, one change at a time, by prediction"
    for number, change in enumerate(found, start=1):
        overrides = " ".join(f"--set {each}" for each in settings(spec, change.to.candidate))
        yield f"{number}. {change.what:<13}{change.gain:>6.1%} shorter steps  {overrides}"


def _record(
    job_id: str,
    shares: Sequence[Shares],
    costs: MeasuredCosts,
    planned: float,
    ideal: float,
    found: Sequence[Change],
    reason: str | None,
    spec: JobSpec,
) -> dict[str, Any]:
    return {
        "id": job_id,
        "step_seconds": {"measured": costs.step, "planned": planned, "ideal": ideal},
        "workers": [
            {
                "worker": each.worker,
                "busy_seconds": {_NAMES.get(name, name): seconds for name, seconds in each.busy.items()},
                "idle_seconds": dict(each.idle),
                "busy_fraction": each.busy_share,
                "planned_busy_fraction": each.planned_busy,
            }
            for each in shares
        ],
        "changes": [
            {"what": change.what, "gain": change.gain, "options": settings(spec, change.to.candidate)}
            for change in found
        ],
        "reason": reason,
    }
