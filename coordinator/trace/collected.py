"""The timeline of a run as its workers report it: its first steps and its last ones."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.trace.alignment import ClockReading, aligned
from coordinator.trace.timeline import Sample, Span, Trace, WorkerTrace

FIRST_STEPS = 5
LAST_STEPS = 50


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
        workers, error = aligned(
            [
                WorkerTrace(
                    worker=worker,
                    dp_rank=dp_rank,
                    stages=stages,
                    spans=tuple(span for times in steps[worker] for span in times.spans),
                    samples=tuple(
                        Sample(time=times.end, in_flight=times.in_flight, memory_bytes=times.memory_bytes)
                        for times in steps[worker]
                    ),
                )
                for worker, (dp_rank, stages) in self._workers.items()
            ],
            clocks,
            zero=zero,
        )
        return Trace(job=job, schedule=schedule, origin=origin, clock_error_seconds=error, workers=workers)
