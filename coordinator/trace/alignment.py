"""Brings the clocks of workers together. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.trace.timeline import Span, Track, WorkerTrace

_ROUNDS = 8
"""Most times that every pair of clocks is looked at; a pipeline's clocks are settled after two or three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """How a worker's clock stands to the coordinator's."""

    name: str
    """Alike where two workers read one clock."""
    offset_seconds: float
    """What to add to the worker's times to get the coordinator's."""
    error_seconds: float
    """How far that may be off."""


def aligned(
    workers: Sequence[WorkerTrace], clocks: Mapping[int, ClockReading | None], *, zero: float
) -> tuple[tuple[WorkerTrace, ...], float]:
    """Return workers by the coordinator's clock, and how far two of their clocks may still be apart.

    A reading of an offset may be off by its error; workers that read one clock take the best of theirs, so that what
    is before and after on one machine stays so. Then clocks are moved by the least that no message is taken before it
    was posted, the less certain one further.

    Args:
        workers: each by its own clock.
        clocks: what is known of each worker's clock; one of which nothing is known is taken for the coordinator's.
        zero: what the coordinator's clock reads at the trace's time 0.
    """
    names = {worker: clock.name if clock is not None else "" for worker, clock in clocks.items()}
    best: dict[str, ClockReading] = {"": ClockReading(name="", offset_seconds=0.0, error_seconds=0.0)}
    for clock in clocks.values():
        if clock is not None and clock.error_seconds < best.get(clock.name, _UNKNOWN).error_seconds:
            best[clock.name] = clock
    used = {name: best[name] for name in names.values()}
    offsets = _possible(used, _least_apart(workers, names))
    shifts = {worker: offsets[name] - zero for worker, name in names.items()}
    largest = sorted(clock.error_seconds for clock in used.values())[-2:]
    return (
        tuple(_left_in_time([_shifted(worker, shifts[worker.worker]) for worker in workers])),
        sum(largest) if len(used) > 1 else 0.0,
    )


_UNKNOWN = ClockReading(name="", offset_seconds=0.0, error_seconds=float("inf"))

Message = tuple[int, int, str, int | None, int | None]
"""Replica, step, kind, stage and microbatch."""


def _messages(workers: Sequence[WorkerTrace], track: Track) -> Iterator[tuple[Message, int, Span]]:
    for worker in workers:
        for span in worker.spans:
            if span.track is track:
                yield (worker.dp_rank, span.step, span.name, span.stage, span.microbatch), worker.worker, span


def _least_apart(workers: Sequence[WorkerTrace], names: Mapping[int, str]) -> dict[tuple[str, str], float]:
    """Return by how much one clock's offset must exceed another's, for messages from the one to the other."""
    posted = {message: (names[worker], span.start) for message, worker, span in _messages(workers, Track.SEND)}
    apart: dict[tuple[str, str], float] = {}
    for message, worker, span in _messages(workers, Track.RECEIVE):
        sender, start = posted.get(message, (names[worker], span.end))
        if sender != names[worker]:
            pair = sender, names[worker]
            apart[pair] = max(apart.get(pair, -float("inf")), start - span.end)
    return apart


def _possible(clocks: Mapping[str, ClockReading], apart: Mapping[tuple[str, str], float]) -> dict[str, float]:
    offsets = {name: clock.offset_seconds for name, clock in clocks.items()}
    for _ in range(_ROUNDS):
        is_settled = True
        for (sender, taker), least in apart.items():
            lack = least - (offsets[taker] - offsets[sender])
            if lack > 0:
                is_settled = False
                errors = clocks[sender].error_seconds, clocks[taker].error_seconds
                share = errors[1] / sum(errors) if sum(errors) else 0.5
                offsets[taker] += lack * share
                offsets[sender] -= lack * (1 - share)
        if is_settled:
            break
    return offsets


def _shifted(worker: WorkerTrace, shift: float) -> WorkerTrace:
    return replace(
        worker,
        spans=tuple(replace(span, start=span.start + shift, end=span.end + shift) for span in worker.spans),
        samples=tuple(replace(sample, time=sample.time + shift) for sample in worker.samples),
    )


def _left_in_time(workers: Sequence[WorkerTrace]) -> Iterator[WorkerTrace]:
    """Yield workers whose sends end when their messages were taken, where they were seen to have left later.

    By then they had left; the thread that looks after sends had to wait for a processor.
    """
    taken = {message: span.end for message, _, span in _messages(workers, Track.RECEIVE)}
    for worker in workers:
        spans = []
        for span in worker.spans:
            if span.track is Track.SEND:
                message = (worker.dp_rank, span.step, span.name, span.stage, span.microbatch)
                end = max(span.start, min(span.end, taken.get(message, span.end)))
                spans.append(replace(span, end=end))
            else:
                spans.append(span)
        yield replace(worker, spans=tuple(spans))
