"""What `takt run` says at the end."""

import json
from pathlib import Path
from typing import Any

from takt.v1 import jobs_pb2 as pb

from coordinator.cli.outcome import outcome_line
from coordinator.cli.tables import duration, error_place, progress_text

LOG_LINES = 15
_NOT_METRICS = frozenset({"step", "split", "examples", "loss", "reason"})


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluations of the job whose folder it is, in order."""
    path = folder / "eval.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def summary_lines(job: pb.Job, *, folder: Path) -> list[str]:
    """Return the summary of a job that has ended."""
    rows = [("steps", _steps(job))]
    if job.HasField("loss"):
        rows.append(("final loss" if job.state == pb.JOB_STATE_SUCCEEDED else "last loss", f"{job.loss:.4f}"))
    rows += [(str(record["split"]), _evaluation(record)) for record in read_evaluations(folder)]
    rows += [(f"worker {worker.worker}", _share(job, worker)) for worker in job.workers]
    rows.append(("files", str(folder)))
    predictions = sorted(folder.glob("predictions-*.tsv"))
    rows += [("predictions", str(path)) for path in predictions]
    if job.state == pb.JOB_STATE_SUCCEEDED and not predictions:
        rows.append(("next", f"takt export {job.id} --state-dir {folder.parent.parent} --out DIR"))
    return [outcome_line(job), *(f"  {name:<12}{text}" for name, text in rows), *_error(job, folder)]


def _steps(job: pb.Job) -> str:
    if not job.HasField("ended"):
        return progress_text(job)
    return f"{progress_text(job)} in {duration(job.ended - (job.started if job.HasField('started') else job.created))}"


def _evaluation(record: dict[str, Any]) -> str:
    metrics = {name: value for name, value in record.items() if name not in _NOT_METRICS}
    values = [f"{name} {_number(value)}" for name, value in [*metrics.items(), ("loss", record.get("loss"))]]
    undefined = f"; undefined: {record['reason']}" if record.get("reason") else ""
    return f"{', '.join(values)} ({record['examples']} rows, after step {record['step']}{undefined})"


def _share(job: pb.Job, worker: pb.JobWorker) -> str:
    """Return how much of its time a worker computed, beside what the plan says of equal stages."""
    stages = f"stage{'s' if len(worker.stages) > 1 else ''} {', '.join(map(str, worker.stages))}"
    total = worker.busy_seconds + worker.idle_seconds
    if total <= 0:
        return f"{stages}: {'no step done' if job.step == 0 else 'its times are not known'}"
    by_stage = [f"{seconds / total:.0%}" for seconds in worker.stage_busy_seconds]
    apart = f", by stage {', '.join(by_stage)}" if len(by_stage) > 1 else ""
    planned = f" (planned {1 - job.plan_bubble_fraction:.0%})" if job.HasField("plan_bubble_fraction") else ""
    return f"{stages}: busy {worker.busy_seconds / total:.0%}{apart}{planned}"


def _error(job: pb.Job, folder: Path) -> list[str]:
    if not job.HasField("error"):
        return []
    error = job.error
    lines = [f"error: {error_place(error)}: {error.type}: {error.message}"]
    log = folder / error.log
    if error.log and log.is_file():
        tail = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        lines += [f"log: {log}, its last lines:", *(f"  | {line}" for line in tail)]
    return lines


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"
