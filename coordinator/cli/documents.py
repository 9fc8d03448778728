"""Jobs and slots as JSON records: fields by name, times in RFC 3339, null for what is unknown."""

import math
from datetime import UTC, datetime
from typing import Any

from takt.v1 import jobs_pb2 as pb


def state_name(state: pb.JobState) -> str:
    """Return the state as users see it, for instance RUNNING."""
    return pb.JobState.Name(state).removeprefix("JOB_STATE_")


def rfc3339(seconds: float) -> str:
    """Return seconds since the Unix epoch as UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def job_record(job: pb.Job) -> dict[str, Any]:
    """Return everything about one job, as `takt status --output json` prints it."""
    return {
        **job_summary(job),
        "workers": [_worker(worker) for worker in job.workers],
        "history": [_change(change) for change in job.history],
    }


def job_summary(job: pb.Job) -> dict[str, Any]:
    """Return a job without its workers and history, as `takt list --output json` prints it."""
    return {
        "id": job.id,
        "name": job.name,
        "state": state_name(job.state),
        "reason": job.reason,
        "attempt": job.attempt,
        "step": job.step,
        "total_steps": _optional(job, "total_steps"),
        "epoch": job.epoch,
        "loss": _optional(job, "loss"),
        "examples_per_second": _optional(job, "examples_per_second"),
        "eta_seconds": _optional(job, "eta_seconds"),
        "created": rfc3339(job.created),
        "started": _time(job, "started"),
        "ended": _time(job, "ended"),
        "priority": job.priority,
        "start_step": job.start_step,
        "missing_slots": job.missing_slots,
        "error": _error(job.error) if job.HasField("error") else None,
    }


def slot_record(slot: pb.Slot) -> dict[str, Any]:
    """Return one slot, as `takt workers --output json` prints it."""
    return {
        "host": slot.host,
        "slot": slot.slot,
        "device": slot.device,
        "pid": slot.pid,
        "state": slot.state,
        "job": slot.job or None,
        "worker": _optional(slot, "worker"),
        "stages": list(slot.stages),
        "parameters": _optional(slot, "parameters"),
        "metrics_address": slot.metrics_address or None,
        "last_heartbeat": rfc3339(slot.last_heartbeat),
    }


def _worker(worker: pb.JobWorker) -> dict[str, Any]:
    return {
        "worker": worker.worker,
        "stages": list(worker.stages),
        "dp_rank": worker.dp_rank,
        "host": worker.host,
        "pid": worker.pid or None,
        "state": worker.state,
        "parameters": _optional(worker, "parameters"),
        "peak_bytes": _optional(worker, "peak_bytes"),
        "busy_seconds": worker.busy_seconds,
        "idle_seconds": worker.idle_seconds,
        "stage_busy_seconds": list(worker.stage_busy_seconds),
        "last_progress": _time(worker, "last_progress"),
    }


def _error(error: pb.JobError) -> dict[str, Any]:
    return {
        "worker": _optional(error, "worker"),
        "stage": _optional(error, "stage"),
        "step": _optional(error, "step"),
        "type": error.type,
        "message": error.message,
        "log": error.log or None,
    }


def _change(change: pb.StateChange) -> dict[str, Any]:
    return {
        "state": state_name(change.state),
        "reason": change.reason,
        "attempt": change.attempt,
        "step": change.step,
        "time": rfc3339(change.time),
    }


def _optional(message: Any, field: str) -> Any:
    value = getattr(message, field) if message.HasField(field) else None
    return None if isinstance(value, float) and not math.isfinite(value) else value  # JSON knows no NaN


def _time(message: Any, field: str) -> str | None:
    return rfc3339(getattr(message, field)) if message.HasField(field) else None
