"""From what the coordinator keeps to what it tells its users."""

from collections.abc import Sequence

from takt.v1 import jobs_pb2 as pb

from coordinator.listing import Place
from coordinator.membership import Slot
from coordinator.records import JobError, JobRecord, JobState, JobView, StateChange, WorkerRecord


def encode_job(view: JobView) -> pb.Job:
    """Return one job with its workers and history."""
    job = encode_record(view.record)
    if view.examples_per_second is not None:
        job.examples_per_second = view.examples_per_second
    if view.eta_seconds is not None:
        job.eta_seconds = view.eta_seconds
    job.workers.extend(_worker(worker) for worker in view.workers)
    job.history.extend(_change(change) for change in view.history)
    return job


def encode_record(record: JobRecord) -> pb.Job:
    """Return one job without its workers and history."""
    return pb.Job(
        id=record.id,
        name=record.name,
        state=_state(record.state),
        reason=record.reason,
        attempt=record.attempt,
        step=record.step,
        total_steps=record.total_steps,
        epoch=record.epoch,
        loss=record.loss,
        created=record.created,
        started=record.started,
        ended=record.ended,
        missing_slots=record.missing_slots,
        error=None if record.error is None else _error(record.error),
        plan_bubble_fraction=record.bubble_fraction,
        skipped_steps=record.skipped_steps,
        priority=record.priority,
        start_step=record.start_step,
    )


def encode_page(records: Sequence[JobRecord], last: Place | None) -> pb.ListJobsResponse:
    """Return a page of jobs; ``last`` is the place of the last one where more follow it."""
    token = "" if last is None else str(last)
    return pb.ListJobsResponse(jobs=[encode_record(record) for record in records], next_page_token=token)


def encode_slot(slot: Slot, *, heard_at_unix: float, worker: WorkerRecord | None) -> pb.Slot:
    """Return one slot.

    Args:
        slot: the slot.
        heard_at_unix: when its agent was last heard of, in Unix seconds.
        worker: the worker that runs on it, if one does.
    """
    return pb.Slot(
        host=slot.host,
        slot=slot.number,
        device=slot.device,
        pid=slot.pid,
        state=slot.state.value,
        job=slot.job,
        worker=slot.worker,
        stages=() if worker is None else worker.stages,
        parameters=None if worker is None else worker.parameters,
        metrics_address=slot.metrics_address,
        last_heartbeat=heard_at_unix,
    )


def _state(state: JobState) -> str:
    """Return the name of a state on the wire, which protobuf takes for its value."""
    return f"JOB_STATE_{state.value}"


def _worker(worker: WorkerRecord) -> pb.JobWorker:
    return pb.JobWorker(
        worker=worker.worker,
        stages=worker.stages,
        dp_rank=worker.dp_rank,
        host=worker.host,
        pid=worker.pid,
        state=worker.state,
        parameters=worker.parameters,
        peak_bytes=worker.peak_bytes,
        last_progress=worker.last_progress,
        busy_seconds=worker.busy_seconds,
        idle_seconds=worker.idle_seconds,
        stage_busy_seconds=worker.stage_busy_seconds,
    )


def _change(change: StateChange) -> pb.StateChange:
    return pb.StateChange(
        state=_state(change.state),
        reason=change.reason,
        attempt=change.attempt,
        step=change.step,
        time=change.time,
    )


def _error(error: JobError) -> pb.JobError:
    return pb.JobError(
        worker=error.worker,
        stage=error.stage,
        step=error.step,
        type=error.type,
        message=error.message,
        log=error.log,
    )
