"""Records as the job store keeps them: from a row of a table to a record, and back; lists are JSON in a row."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from coordinator.records import EvaluationRecord, JobError, JobRecord, JobState, StateChange, StepRecord, WorkerRecord

Values = dict[str, Any]
"""A row by its columns."""
_WORKER_LISTS = frozenset({"stages", "stage_busy_seconds"})


def job_of(row: sqlite3.Row) -> JobRecord:
    """Return the job in a row."""
    error = None if row["error"] is None else JobError(**json.loads(row["error"]))
    return JobRecord(**_fields(row, JobRecord) | {"state": JobState(row["state"]), "error": error})


def job_values(job: JobRecord) -> Values:
    """Return the row of a job."""
    return _values(job) | {"error": error_text(job.error)}


def change_of(row: sqlite3.Row) -> StateChange:
    """Return the change of state in a row."""
    return StateChange(**_fields(row, StateChange) | {"state": JobState(row["state"])})


def change_values(job: str, change: StateChange) -> Values:
    """Return the row of a change of a job's state."""
    return _values(change) | {"job": job}


def step_of(row: sqlite3.Row) -> StepRecord:
    """Return the committed step in a row."""
    rows = None
    if row["rows"] is not None:
        rows = tuple(tuple(tuple(ids) for ids in replica) for replica in json.loads(row["rows"]))
    return StepRecord(**_fields(row, StepRecord) | {"skipped": bool(row["skipped"]), "rows": rows})


def step_values(job: str, step: StepRecord) -> Values:
    """Return the row of a committed step."""
    return _values(step) | {"rows": None if step.rows is None else json.dumps(step.rows), "job": job}


def evaluation_of(row: sqlite3.Row) -> EvaluationRecord:
    """Return the evaluation in a row."""
    metrics = tuple((name, value) for name, value in json.loads(row["metrics"]))
    return EvaluationRecord(**_fields(row, EvaluationRecord) | {"metrics": metrics})


def evaluation_values(job: str, evaluation: EvaluationRecord) -> Values:
    """Return the row of an evaluation."""
    return _values(evaluation) | {"metrics": json.dumps(evaluation.metrics), "job": job}


def worker_of(row: sqlite3.Row) -> WorkerRecord:
    """Return the worker in a row."""
    fields = _fields(row, WorkerRecord)
    return WorkerRecord(**fields | {name: tuple(json.loads(fields[name])) for name in _WORKER_LISTS & fields.keys()})


def worker_values(job: str, worker: WorkerRecord) -> Values:
    """Return the row of a job's worker."""
    return _values(worker) | {name: json.dumps(getattr(worker, name)) for name in _WORKER_LISTS} | {"job": job}


def error_text(error: JobError | None) -> str | None:
    """Return what ended a job as a row keeps it."""
    return None if error is None else json.dumps(_values(error))


def _values(record: Any) -> Values:
    return {name: getattr(record, name) for name in record.__slots__}


def _fields(row: sqlite3.Row, record: type) -> Values:
    names: Sequence[str] = record.__slots__  # type: ignore[attr-defined]  # every record has slots
    # What a store of an older version, opened for reading, does not know has the record's default.
    return {name: row[name] for name in names if name in row.keys()}  # noqa: SIM118  # a row iterates over values
