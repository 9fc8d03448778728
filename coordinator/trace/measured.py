"""What actions cost, as the trace of a run tells it. Pure.

All figures are of a step, then the median over the steps that are traced, but for the first ones, in which memory is
touched for the first time and code is loaded. Within a step it is means that count: what is late now and then makes the
step longer by just that.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean, median

from coordinator.trace.action_times import OPS, ActionTime, action_times
from coordinator.trace.timeline import Span, Trace, Track, WorkerTrace

WARMING_STEPS = 3
"""Steps at the start of a run that do not count, where there are more."""
_STEP_WAITS = ("send", "data", "command")
"""What a worker waits for that no plan foretells; a checkpoint is not of every step."""


class NoTimesError(ValueError):
    """A trace that says too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCosts:
    """What one microbatch's actions and one step took, in seconds."""

    actions: Mapping[tuple[int, str], ActionTime]
    """By global stage and op, ``F B I W``; what a run never did is not in it."""
    first_backward: float
    """What the first backward of a step takes longer in the embeddings, where it makes their gradient."""
    transfer: float
    """From the end of an action until the next worker has its result, where that waited for it; 0 if nobody did."""
    action_seconds: float
    """What passes between two actions of a worker that are ready."""
    optimizer: Mapping[int, float]
    """By worker: the update of its parameters."""
    reduce: Mapping[int, float]
    """By worker: sums over replicas, waiting for them included."""
    vote: float
    """What the worker that comes last waits for the verdict on the step."""
    waits: float
    """What no worker of a step can do without waiting for: commands, rows, sends."""
    step: float
    """A whole step, from its first action to the next one's."""


def measured_costs(trace: Trace) -> MeasuredCosts:
    """Return what the steps of ``trace`` cost.

    Raises:
        NoTimesError: No step is whole.
    """
    counted = counted_steps(trace)
    steps = [_steps_of(worker) for worker in trace.workers]
    own = [[each[step] for step in counted] for each in steps]
    workers = [worker.worker for worker in trace.workers]
    actions, first_backward = action_times([span for step in spans for span in step] for spans in own)
    return MeasuredCosts(
        actions=actions,
        first_backward=first_backward,
        transfer=_transfer(trace, counted),
        action_seconds=median(_between(step) for spans in own for step in spans),
        optimizer={
            worker: median(_sum(step, ("step",)) for step in spans) for worker, spans in zip(workers, own, strict=True)
        },
        reduce={
            worker: median(_sum(step, ("reduce",)) for step in spans)
            for worker, spans in zip(workers, own, strict=True)
        },
        vote=median(min(_sum(step, ("reduce",)) for step in at_once) for at_once in zip(*own, strict=True)),
        waits=median(min(_sum(step, _STEP_WAITS) for step in at_once) for at_once in zip(*own, strict=True)),
        step=median(
            max(step[-1].end for step in at_once) - min(step[0].start for step in at_once)
            for at_once in zip(*own, strict=True)
        ),
    )


def counted_steps(trace: Trace) -> list[int]:
    """Return the steps that every worker's part has, first ones left out where there are more.

    Raises:
        NoTimesError: There is none.
    """
    steps = [frozenset(_steps_of(worker)) for worker in trace.workers]
    counted = sorted(frozenset.intersection(*steps)) if steps else []
    if not counted:
        raise NoTimesError("no training step was traced on every worker, so nothing is known of what actions cost")
    return counted[WARMING_STEPS:] or counted


def _steps_of(worker: WorkerTrace) -> dict[int, list[Span]]:
    """Return what a worker computed and waited for by step, in order."""
    steps: defaultdict[int, list[Span]] = defaultdict(list)
    for span in worker.spans:
        if span.track is Track.COMPUTE:
            steps[span.step].append(span)
    return steps


def _sum(step: Iterable[Span], names: tuple[str, ...]) -> float:
    return sum(span.end - span.start for span in step if span.name in names)


def _between(step: list[Span]) -> float:
    """Return the time of a step that no span of its covers, for each action."""
    num_actions = len({(span.stage, span.name, span.microbatch) for span in step if span.name in OPS})
    covered = sum(span.end - span.start for span in step if span.name != "other")
    return (step[-1].end - step[0].start - covered) / max(1, num_actions)


def _transfer(trace: Trace, steps: Iterable[int]) -> float:
    """Return the way of a message that was waited for, from when its send was posted."""
    counted = frozenset(steps)
    posted = {
        (span.step, span.name, span.stage, span.microbatch, worker.dp_rank): span.start
        for worker in trace.workers
        for span in worker.spans
        if span.track is Track.SEND and span.step in counted
    }
    ways: defaultdict[int, list[float]] = defaultdict(list)
    for worker in trace.workers:
        waited = {
            (span.step, span.name, span.stage, span.microbatch): span.start
            for span in worker.spans
            if span.track is Track.COMPUTE and span.name in ("activation", "gradient")
        }
        for span in worker.spans:
            if span.track is not Track.RECEIVE or span.step not in counted or span.stage is None:
                continue
            sent = posted.get((span.step, span.name, span.stage, span.microbatch, worker.dp_rank))
            used_by = span.stage + (1 if span.name == "activation" else -1)
            since = waited.get((span.step, span.name, used_by, span.microbatch))
            if sent is not None and since is not None and since < sent:
                ways[span.step].append(span.end - sent)
    return max(0.0, median(map(mean, ways.values()))) if ways else 0.0
