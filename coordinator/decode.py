"""From what executors and agents say to the events of a run."""

import math
from collections.abc import Sequence

from takt.v1 import commands_pb2, data_pb2, workers_pb2

from coordinator.events import Ended, EndKind, Faulted, ItemKind, Ready, Reported, Saved, SavedShard, StepResult
from coordinator.failure import Fault, FaultKind
from coordinator.records import JobError
from coordinator.scoring import Row
from coordinator.start import AgreedState
from coordinator.trace.alignment import ClockReading
from coordinator.trace.collected import StepTimes
from coordinator.trace.timeline import Span, Track

KINDS = {data_pb2.PHASE_TRAIN: ItemKind.TRAIN, data_pb2.PHASE_EVALUATE: ItemKind.EVALUATE}
"""What a phase asks for."""
_TRACKS = {
    commands_pb2.TRACK_COMPUTE: Track.COMPUTE,
    commands_pb2.TRACK_SEND: Track.SEND,
    commands_pb2.TRACK_RECEIVE: Track.RECEIVE,
    commands_pb2.TRACK_DATA: Track.DATA,
}
_ENDS = {
    workers_pb2.END_CAUSE_EXITED: EndKind.EXITED,
    workers_pb2.END_CAUSE_SIGNALLED: EndKind.SIGNALLED,
    workers_pb2.END_CAUSE_RELEASED: EndKind.RELEASED,
    workers_pb2.END_CAUSE_STUCK: EndKind.STUCK,
    workers_pb2.END_CAUSE_SILENT: EndKind.SILENT,
    workers_pb2.END_CAUSE_NOT_STARTED: EndKind.NOT_STARTED,
}


def ready_of(worker: int, message: workers_pb2.ExecutorReady) -> Ready:
    """Decode that a worker is ready."""
    return Ready(worker, message.parameters, message.peak_bytes)


def reported_of(worker: int, message: commands_pb2.StepReport) -> Reported:
    """Decode a step report; a norm that is not finite is taken as none."""
    has_norm = message.HasField("grad_norm") and math.isfinite(message.grad_norm)
    result = StepResult(
        worker=worker,
        loss_sums=tuple(message.loss_sums),
        grad_norm=message.grad_norm if has_norm else None,
        learning_rate=message.learning_rate,
        skipped=message.skipped,
        loss_scale=message.loss_scale if message.HasField("loss_scale") else None,
        busy_seconds=tuple((share.stage, share.seconds) for share in message.times if share.busy),
        idle_seconds=sum(share.seconds for share in message.times if not share.busy),
    )
    return Reported(KINDS.get(message.phase, ItemKind.STOP), message.step, result)


def step_times_of(message: commands_pb2.StepReport) -> StepTimes:
    """Decode when a worker did what in a training step; what is no time is left out."""
    clock = message.clock
    return StepTimes(
        step=message.step,
        spans=tuple(
            Span(
                track=_TRACKS[span.track],
                name=span.name,
                start=span.start,
                end=span.end,
                step=message.step,
                stage=span.stage if span.HasField("stage") else None,
                microbatch=span.microbatch if span.HasField("microbatch") else None,
                peer=span.peer if span.HasField("peer") else None,
                num_bytes=span.bytes if span.HasField("peer") else None,
                embeddings=span.embeddings,
                layers=span.layers,
                head=span.head,
            )
            for span in message.spans
            if span.track in _TRACKS and _is_finite(span)
        ),
        end=message.sent,
        in_flight=message.peak_in_flight,
        memory_bytes=message.memory_bytes,
        clock=ClockReading(name=clock.name, offset_seconds=clock.offset_seconds, error_seconds=clock.error_seconds)
        if message.HasField("clock")
        else None,
    )


def _is_finite(span: commands_pb2.Span) -> bool:
    return all(map(math.isfinite, (span.start, span.end, span.embeddings, span.layers, span.head)))


def rows_of(message: workers_pb2.EvaluationRows) -> list[Row]:
    """Decode the outputs of an evaluation."""
    return [Row(row.row_id, tuple(row.outputs), row.label if row.HasField("label") else None) for row in message.rows]


def saved_of(worker: int, message: workers_pb2.ShardsSaved) -> Saved:
    """Decode that shards were written."""
    shards = tuple(
        SavedShard(file=shard.file, kind=shard.kind, stage=shard.stage, sha256=shard.sha256, num_bytes=shard.bytes)
        for shard in message.shards
    )
    agreed = AgreedState(
        updates_applied=message.agreed.updates_applied,
        loss_scale=message.agreed.loss_scale if message.agreed.HasField("loss_scale") else None,
        clean_steps=message.agreed.clean_steps,
    )
    return Saved(worker, message.step, shards, agreed, error=message.error, seconds=message.seconds)


def faulted_of(worker: int, message: workers_pb2.ExecutorFailure, *, stages: Sequence[int], log: str) -> Faulted:
    """Decode an executor's own failure; ``stages`` are those it holds, the first one for where it names none."""
    stage = message.stage if message.HasField("stage") else stages[0]
    own = FaultKind.EXCEPTION if stage in stages else FaultKind.TOLD
    error = JobError(
        type=message.type,
        message=message.message,
        worker=worker,
        stage=stage,
        step=message.step or None,
        log=log,
    )
    return Faulted(Fault(kind=FaultKind.PEER if message.peer_lost else own, error=error))


def ended_of(worker: int, message: workers_pb2.ExecutorEnded) -> Ended:
    """Decode an agent's word that an executor is gone."""
    return Ended(
        worker,
        _ENDS.get(message.cause, EndKind.EXITED),
        exit_code=message.exit_code,
        signal=message.signal,
        message=message.message,
        log_tail=message.log_tail,
        stage=message.stage if message.HasField("stage") else None,
    )
