"""The trace that a plan promises."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from coordinator.schedule.actions import Action, Op
from coordinator.schedule.channels import counterpart, receive_of, send_of
from coordinator.schedule.placement import Placement
from coordinator.schedule.simulate import Span as Computed
from coordinator.schedule.simulate import Timeline
from coordinator.trace.timeline import Sample, Span, Trace, Track, WorkerTrace

_KINDS = {
    Op.SEND_ACTIVATION: "activation",
    Op.RECV_ACTIVATION: "activation",
    Op.SEND_GRADIENT: "gradient",
    Op.RECV_GRADIENT: "gradient",
}


def planned_trace(
    timeline: Timeline,
    placement: Placement,
    *,
    job: str,
    schedule: str,
    unit_seconds: float,
    comm: float | Sequence[float],
    optimizer: Sequence[float] | None = None,
    num_replicas: int = 1,
) -> Trace:
    """Return one step, number 1, as predicted; it begins at 0, every replica alike.

    Args:
        timeline: The prediction.
        placement: Of the plan's stages.
        job: Name of the job.
        schedule: Name of the schedule.
        unit_seconds: Seconds that one unit of ``timeline`` stands for.
        comm: One way between two workers, in units; or that of each boundary, ``s`` between the stages s and s + 1.
        optimizer: What each worker's update takes at the start of the step, in units; ``None`` where it takes nothing.
        num_replicas: Pipelines of the job.
    """
    spans: defaultdict[int, list[Span]] = defaultdict(list)
    for worker, computed in enumerate(timeline.workers):
        begin = 0.0 if optimizer is None else optimizer[worker]
        spans[worker] += _compute(computed, placement, begin=begin, end=timeline.makespan)
        for made in computed:
            transfer = send_of(made.action, placement)
            if transfer is None:
                continue
            other = counterpart(transfer)
            receiver = placement.worker_of(other.stage)
            end = made.end + (comm if isinstance(comm, int | float) else comm[min(transfer.stage, other.stage)])
            spans[worker].append(_span(Track.SEND, transfer, made.end, end, peer=receiver))
            spans[receiver].append(_span(Track.RECEIVE, transfer, made.end, end, peer=worker))
    pipeline = [
        WorkerTrace(
            worker=worker,
            dp_rank=0,
            stages=placement.stages_of(worker),
            spans=tuple(
                replace(span, start=span.start * unit_seconds, end=span.end * unit_seconds)
                for span in sorted(spans[worker], key=lambda span: span.start)
            ),
            samples=tuple(
                Sample(time=time * unit_seconds, in_flight=in_flight, memory_bytes=None)
                for time, in_flight in _in_flight(computed)
            ),
        )
        for worker, computed in enumerate(timeline.workers)
    ]
    return Trace(
        job=job,
        schedule=schedule,
        origin=0.0,
        clock_error_seconds=0.0,
        workers=tuple(_moved(worker, dp_rank, len(pipeline)) for dp_rank in range(num_replicas) for worker in pipeline),
    )


def repeated(planned: Trace, starts: Mapping[int, float], *, origin: float) -> Trace:
    """Return the step of ``planned`` once for each step of ``starts``: by step, when it began on a trace's clock.

    A step that was faster than its plan leaves the plan no room; the next one then begins as soon as the plan of the
    one before it ends, since nobody computes two at once. ``origin`` is that of the trace, so that both can be drawn
    together.
    """
    length = max(span.end for worker in planned.workers for span in worker.spans)
    begins: dict[int, float] = {}
    free = -math.inf
    for step in sorted(starts):
        begins[step] = max(starts[step], free)
        free = begins[step] + length

    def spans(worker: WorkerTrace) -> Iterator[Span]:
        for step, begin in begins.items():
            for span in worker.spans:
                yield replace(span, step=step, start=begin + span.start, end=begin + span.end)

    def samples(worker: WorkerTrace) -> Iterator[Sample]:
        for begin in begins.values():
            yield from (replace(sample, time=begin + sample.time) for sample in worker.samples)

    workers = tuple(
        replace(worker, spans=tuple(spans(worker)), samples=tuple(samples(worker))) for worker in planned.workers
    )
    return replace(planned, origin=origin, workers=workers)


def _compute(computed: Sequence[Computed], placement: Placement, *, begin: float, end: float) -> Iterator[Span]:
    """Yield what a worker computes, what it waits for in between, and that it then waits for all others."""
    if begin > 0:
        yield Span(track=Track.COMPUTE, name="step", start=0.0, end=begin, step=1)
    now = begin
    for start, action_end, action in computed:
        if start > now:
            awaited = receive_of(action, placement)
            name = "other" if awaited is None else _KINDS[awaited.op]
            yield _span(Track.COMPUTE, action, now, start, name=name)
        yield _span(Track.COMPUTE, action, start, action_end, name=str(action.op))
        now = action_end
    if end > now:
        yield Span(track=Track.COMPUTE, name="reduce", start=now, end=end, step=1)


def _span(
    track: Track, action: Action, start: float, end: float, *, name: str | None = None, peer: int | None = None
) -> Span:
    return Span(
        track=track,
        name=_KINDS[action.op] if name is None else name,
        start=start,
        end=end,
        step=1,
        stage=action.stage,
        microbatch=action.microbatch,
        peer=peer,
    )


def _in_flight(computed: Sequence[Computed]) -> Iterator[tuple[float, int]]:
    """Yield when the number of microbatches that a worker's stages hold changes, and to what."""
    last: dict[tuple[int, int], float] = {}
    changes: defaultdict[float, int] = defaultdict(int)
    for start, end, action in computed:
        if action.op is Op.FORWARD:
            changes[start] += 1
        else:  # a half that comes later takes the place of the one before it
            last[action.stage, action.microbatch] = end
    for end in last.values():
        changes[end] -= 1
    held = 0
    for time in sorted(changes):
        held += changes[time]
        yield time, held


def _moved(worker: WorkerTrace, dp_rank: int, pp: int) -> WorkerTrace:
    """Return a worker of the first replica as that of another one."""
    first = dp_rank * pp
    spans = (span if span.peer is None else replace(span, peer=first + span.peer) for span in worker.spans)
    return replace(worker, worker=first + worker.worker, dp_rank=dp_rank, spans=tuple(spans))
