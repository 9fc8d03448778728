"""Writes traces as Chrome trace JSON (Trace Event Format, object form), which Perfetto opens.

A process is a worker, a thread one of its tracks; the plan of a worker is a process of its own behind it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from coordinator.trace.timeline import Span, Trace, Track, WorkerTrace
from coordinator.trace.transfers import transfers_of

VERSION = 1
IN_FLIGHT, MEMORY = "in flight", "memory"  # counters
BUSY = frozenset({"F", "B", "I", "W", "step"})
"""Names on COMPUTE under which a worker computes; under all others it waits."""
_LETTERS = {"activation": "F", "gradient": "B"}  # as in a plan's SEND_F and RECV_B
_ONWARD = {"activation": 1, "gradient": -1}  # from the stage whose result travels to the one that takes it
_MOST_LANES = 10_000  # of a track, whose threads have numbers side by side
_TRACKS = tuple(Track)
_MEASURED, _PLANNED = 0, 1
_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def to_chrome(measured: Trace | None, predicted: Trace | None, *, remark: str | None = None) -> Iterator[str]:
    """Yield the document in pieces, one event a line; equal traces give equal text.

    Times are written in microseconds to the nanosecond. A prediction keeps its distance to the measured trace by
    the ``origin`` of both. Spans of one track that overlap get threads of their own, since a viewer would lose them
    on one. Whoever reads the file finds ``remark`` among its metadata.
    """
    yield '{"displayTimeUnit":"ms",\n"metadata":'
    yield _json({"takt_trace": VERSION, "remark": remark, "measured": _head(measured), "planned": _head(predicted)})
    yield ',\n"traceEvents":['
    shift = predicted.origin - measured.origin if measured is not None and predicted is not None else 0.0
    separator, first_arrow = "\n", 1
    for trace, part, delay in ((measured, _MEASURED, 0.0), (predicted, _PLANNED, shift)):
        if trace is None:
            continue
        writer = _Writer(trace, part, _nanoseconds(delay))
        for event in writer.events():
            yield separator + event
            separator = ",\n"
        for event in writer.arrows(first_arrow):
            yield separator + event
            first_arrow += event.startswith('{"ph":"s"')
    yield "\n]}\n"


def process_of(worker: int, *, planned: bool) -> int:
    """Return the number of a worker's process; 0 is left to the system."""
    return 2 * worker + (_PLANNED if planned else _MEASURED) + 1


def category(span: Span) -> str:
    """Return what a span counts as: its track, or on COMPUTE ``busy`` or ``idle``."""
    if span.track is Track.COMPUTE:
        return "busy" if span.name in BUSY else "idle"
    return span.track


def title(span: Span) -> str:
    """Return the name of a span's event, as a plan would call it."""
    stage = "" if span.stage is None else span.stage
    microbatch = "" if span.microbatch is None else span.microbatch
    match span.track:
        case Track.COMPUTE if span.name == "step":
            return "STEP"
        case Track.COMPUTE if span.name in BUSY:
            return f"{stage}{span.name}{microbatch}"
        case Track.COMPUTE:
            return f"wait {span.name}"
        case Track.DATA:
            return f"{span.name} {microbatch}".rstrip()
        case Track.SEND:
            return f"{stage}SEND_{_LETTERS.get(span.name, f'{span.name}_')}{microbatch}"
        case _:
            if span.stage is not None:
                stage = span.stage + _ONWARD.get(span.name, 0)
            return f"{stage}RECV_{_LETTERS.get(span.name, f'{span.name}_')}{microbatch}"


class _Writer:
    """One trace as events."""

    def __init__(self, trace: Trace, part: int, delay: int) -> None:
        self._trace, self._part, self._delay = trace, part, delay
        self._starts = [[_nanoseconds(span.start) for span in worker.spans] for worker in trace.workers]
        # Note [A receive is drawn from its send on]
        # A receive may have been posted long before anything was sent. A viewer turns an arrow round whose end begins
        # before its begin does, so such a receive is drawn from where its send begins; args.posted is its true start.
        for (sender, sent), (receiver, received) in transfers_of(trace):
            end = _nanoseconds(trace.workers[receiver].spans[received].end)
            begin = min(self._starts[sender][sent], end)
            self._starts[receiver][received] = max(self._starts[receiver][received], begin)
        self._lanes = [_lanes(worker.spans, starts) for worker, starts in zip(trace.workers, self._starts, strict=True)]

    def events(self) -> Iterator[str]:
        """Yield all that a worker's process shows, worker by worker."""
        for worker, starts, lanes in zip(self._trace.workers, self._starts, self._lanes, strict=True):
            process = self._process(worker)
            yield _metadata("process_name", process, 0, name=self._name(worker))
            yield _metadata("process_sort_index", process, 0, sort_index=process)
            yield from _threads(process, [(span.track, lane) for span, lane in zip(worker.spans, lanes, strict=True)])
            for span, start, lane in zip(worker.spans, starts, lanes, strict=True):
                yield self._span(process, span, start, lane)
            yield from self._samples(process, worker)

    def arrows(self, first: int) -> Iterator[str]:
        """Yield the two ends of each arrow; the arrows are numbered on from ``first``.

        An end is tied to the last slice that began on its thread, by time and then by place in the file. So all
        slices come before it, and the begin of an arrow before its end.
        """
        for number, transfer in enumerate(transfers_of(self._trace), first):
            (sender, sent), (receiver, received) = transfer
            name, start = self._trace.workers[sender].spans[sent].name, self._starts[sender][sent]
            received_at = _nanoseconds(self._trace.workers[receiver].spans[received].end)
            end = max(self._starts[receiver][received], received_at - 1)
            tail = f'"id":{number},"name":{_json(name)},"cat":"transfer"}}'
            yield f'{{"ph":"s",{self._place(sender, sent)},"ts":{self._time(start)},{tail}'
            yield f'{{"ph":"f","bp":"e",{self._place(receiver, received)},"ts":{self._time(end)},{tail}'

    def _place(self, worker: int, span: int) -> str:
        """Return process and thread of a span."""
        track, lane = self._trace.workers[worker].spans[span].track, self._lanes[worker][span]
        return f'"pid":{self._process(self._trace.workers[worker])},"tid":{_thread(track, lane)}'

    def _process(self, worker: WorkerTrace) -> int:
        return process_of(worker.worker, planned=self._part == _PLANNED)

    def _time(self, nanoseconds: int) -> str:
        return _microseconds(self._delay + nanoseconds)

    def _name(self, worker: WorkerTrace) -> str:
        """Return what a worker's process is called, so that names sort as numbers do."""
        last = max(worker.worker for worker in self._trace.workers)
        name = f"worker {worker.worker:0{len(str(last))}}"
        if self._part == _PLANNED:
            return f"{name} (planned)"
        replica = f"replica {worker.dp_rank}, " if any(worker.dp_rank for worker in self._trace.workers) else ""
        stages = "stage" if len(worker.stages) == 1 else "stages"
        return f"{name} ({replica}{stages} {' '.join(map(str, worker.stages))})"

    def _span(self, process: int, span: Span, start: int, lane: int) -> str:
        posted, end = _nanoseconds(span.start), _nanoseconds(span.end)
        args = f'"kind":{_json(span.name)},"step":{span.step}'
        for key, value in (
            ("stage", span.stage),
            ("microbatch", span.microbatch),
            ("peer", span.peer),
            ("bytes", span.num_bytes),
        ):
            if value is not None:
                args += f',"{key}":{value}'
        for key, seconds in (("embeddings", span.embeddings), ("layers", span.layers), ("head", span.head)):
            if seconds:
                args += f',"{key}":{_microseconds(_nanoseconds(seconds))}'
        if posted != start:
            args += f',"posted":{self._time(posted)}'
        return (
            f'{{"ph":"X","pid":{process},"tid":{_thread(span.track, lane)},"ts":{self._time(start)},'
            f'"dur":{_microseconds(end - start)},"name":{_json(title(span))},"cat":"{category(span)}",'
            f'"args":{{{args}}}}}'
        )

    def _samples(self, process: int, worker: WorkerTrace) -> Iterator[str]:
        """Yield the counters of a worker."""
        for sample in worker.samples:
            head = f'{{"ph":"C","pid":{process},"ts":{self._time(_nanoseconds(sample.time))}'
            yield f'{head},"name":"{IN_FLIGHT}","args":{{"microbatches":{sample.in_flight}}}}}'
            if sample.memory_bytes is not None:
                yield f'{head},"name":"{MEMORY}","args":{{"bytes":{sample.memory_bytes}}}}}'


def _lanes(spans: Sequence[Span], starts: Sequence[int]) -> list[int]:
    """Return a lane of its track for each of ``spans``, so that none of a lane overlap or begin together."""
    ends: dict[Track, list[int]] = {track: [] for track in Track}
    lanes = [0] * len(spans)
    for index in sorted(range(len(spans)), key=lambda index: starts[index]):
        start, taken = starts[index], ends[spans[index].track]
        lane = next((lane for lane, end in enumerate(taken) if end <= start), len(taken))
        taken[lane : lane + 1] = [max(_nanoseconds(spans[index].end), start + 1)]
        lanes[index] = lane
    return lanes


def _threads(process: int, used: Iterable[tuple[Track, int]]) -> Iterator[str]:
    """Yield names and places of a process's threads: the first of each track, and whatever else is used."""
    for track, lane in sorted({*used, *((track, 0) for track in Track)}, key=lambda thread: _thread(*thread)):
        thread = _thread(track, lane)
        yield _metadata("thread_name", process, thread, name=track if lane == 0 else f"{track} {lane + 1}")
        yield _metadata("thread_sort_index", process, thread, sort_index=thread)


def _thread(track: Track, lane: int) -> int:
    return _MOST_LANES * (1 + _TRACKS.index(track)) + lane


def _head(trace: Trace | None) -> dict[str, Any] | None:
    """Return what a trace says beside its events."""
    if trace is None:
        return None
    workers = [{"worker": w.worker, "dp_rank": w.dp_rank, "stages": w.stages} for w in trace.workers]
    return {
        "job": trace.job,
        "schedule": trace.schedule,
        "origin": trace.origin,
        "clock_error_seconds": trace.clock_error_seconds,
        "workers": workers,
    }


def _metadata(kind: str, process: int, thread: int, **args: str | int) -> str:
    return _json({"ph": "M", "pid": process, "tid": thread, "name": kind, "args": args})


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _microseconds(nanoseconds: int) -> str:
    whole, part = divmod(abs(nanoseconds), 1000)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{part:03d}"
