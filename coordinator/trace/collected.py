"""The timeline of a run as its workers report it: its first steps and its last ones."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.trace.timeline import Sample, Span, Trace, Track, WorkerTrace

FIRST_STEPS = 5
LAST_STEPS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """How a worker's clock stands to the coordinator's."""

    name: str
    """Alike where two workers read one clock."""
    offset_seconds: float
    """What to add to the worker's times to get the coordinator's."""
    error_seconds: float
    """How far that may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """What one worker did in one training step, told by its own clock."""

    step: int
    spans: tuple[Span, ...]
    end: float
    """When it told so."""
    in_flight: int
    """Most microbatches in flight at once."""
    memory_bytes: int
    clock: ClockReading | None
    """None before anything is known of the clock."""


class Collected:
    """Keeps what is traced of one attempt."""

    def __init__(self, workers: Mapping[int, tuple[int, tuple[int, ...]]]) -> None:
        """Begin with nothing.

        Args:
            workers: dp rank and stages of each worker.
        """
        self._workers = dict(workers)
        self._first: dict[int, list[StepTimes]] = {worker: [] for worker in workers}
        self._last: dict[int, deque[StepTimes]] = {worker: deque(maxlen=LAST_STEPS) for worker in workers}

    def add(self, worker: int, times: StepTimes) -> None:
        """Take a step of one worker; of those after the first ones the oldest is forgotten."""
        first = self._first[worker]
        (first if len(first) < FIRST_STEPS else self._last[worker]).append(times)

    def trace(self, *, job: str, schedule: str, origin: float, zero: float) -> Trace | None:
        """Return what was collected, on the coordinator's clock; None where that is nothing.

        Args:
            job: id.
            schedule: name.
            origin: Unix seconds of the trace's time 0.
            zero: the same moment by the coordinator's clock.
        """
        steps = {worker: [*self._first[worker], *self._last[worker]] for worker in self._workers}
        if not any(steps.values()):
            return None
        clocks = {
            worker: next((each.clock for each in reversed(own) if each.clock is not None), None)
            for worker, own in steps.items()
        }
        known = _best_by_name([clock for clock in clocks.values() if clock is not None])
        workers, errors = [], {}
        for worker, (dp_rank, stages) in self._workers.items():
            clock = clocks[worker]
            offset, errors[clock.name if clock else ""] = known[clock.name] if clock else (0.0, 0.0)
            shift = offset - zero
            workers.append(
                WorkerTrace(
                    worker=worker,
                    dp_rank=dp_rank,
                    stages=stages,
                    spans=tuple(_shifted(span, shift) for times in steps[worker] for span in times.spans),
                    samples=tuple(
                        Sample(time=times.end + shift, in_flight=times.in_flight, memory_bytes=times.memory_bytes)
                        for times in steps[worker]
                    ),
                )
            )
        apart = sorted(errors.values())[-2:]  # workers of one clock are off by the same
        return Trace(
            job=job,
            schedule=schedule,
            origin=origin,
            clock_error_seconds=sum(apart) if len(errors) > 1 else 0.0,
            workers=tuple(_left_in_time(workers)),
        )


def _best_by_name(clocks: Sequence[ClockReading]) -> dict[str, tuple[float, float]]:
    """Return offset and error of each clock: the reading that is off least, whichever worker has it."""
    best: dict[str, tuple[float, float]] = {}
    for clock in clocks:
        if clock.name not in best or clock.error_seconds < best[clock.name][1]:
            best[clock.name] = clock.offset_seconds, clock.error_seconds
    return best


def _left_in_time(workers: Sequence[WorkerTrace]) -> Iterator[WorkerTrace]:
    """Yield workers whose sends end when their messages were taken, where they were seen to have left later.

    By then they had left; the thread that looks after sends had to wait for a processor.
    """
    taken = {
        (worker.dp_rank, span.step, span.name, span.stage, span.microbatch): span.end
        for worker in workers
        for span in worker.spans
        if span.track is Track.RECEIVE
    }
    for worker in workers:
        spans = []
        for span in worker.spans:
            if span.track is Track.SEND:
                end = taken.get((worker.dp_rank, span.step, span.name, span.stage, span.microbatch), span.end)
                spans.append(replace(span, end=max(span.start, min(span.end, end))))
            else:
                spans.append(span)
        yield replace(worker, spans=tuple(spans))


def _shifted(span: Span, shift: float) -> Span:
    return replace(span, start=span.start + shift, end=span.end + shift)
