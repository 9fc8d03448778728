"""Reads the measured part of the Chrome trace JSON that `chrome` writes."""

import json
import math
from dataclasses import replace
from typing import Any

from coordinator.trace.chrome import IN_FLIGHT, MEMORY, VERSION, process_of
from coordinator.trace.timeline import Sample, Span, Trace, Track, WorkerTrace

_TRACKS = {"busy": Track.COMPUTE, "idle": Track.COMPUTE, "send": Track.SEND, "receive": Track.RECEIVE}
_TRACKS["data"] = Track.DATA


class TraceError(ValueError):
    """A text that is no trace of ours; the message goes on behind the name of the file."""


def from_chrome(text: str) -> Trace:
    """Return the measured trace that ``text`` holds, its times to the nanosecond; what was planned is left out.

    Raises:
        TraceError: ``text`` is no JSON, not from here, of another version, holds nothing measured, or is damaged.
    """
    try:
        document = json.loads(text, object_hook=_without_ends_of_arrows)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"is no JSON: {error}") from None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    version = metadata.get("takt_trace") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or version is None:
        raise TraceError("is no trace that Takt wrote: it has no metadata.takt_trace")
    if version != VERSION:
        raise TraceError(f"is a trace of version {version!r}, this version of Takt reads {VERSION}")
    if metadata.get("measured") is None:
        raise TraceError("holds a plan only and nothing measured")
    try:
        trace = _head(metadata["measured"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"is damaged in metadata.measured: {_reason(error)}") from None
    events = document.get("traceEvents")
    if not isinstance(events, list):
        raise TraceError("is damaged: traceEvents is missing, or no list")
    parts = {process_of(worker.worker, planned=False): _Part() for worker in trace.workers}
    for index, event in enumerate(events):
        try:
            _add(event, parts)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise TraceError(f"is damaged in traceEvents[{index}]: {_reason(error)}") from None
    workers = (
        replace(worker, spans=tuple(part.spans), samples=tuple(part.samples))
        for worker, part in zip(trace.workers, parts.values(), strict=True)
    )
    return replace(trace, workers=tuple(workers))


class _Part:
    """What is read of one worker."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.samples: list[Sample] = []


def _without_ends_of_arrows(value: dict[str, Any]) -> dict[str, Any] | None:
    """Drop, while the text is read, what is as much as all the rest and follows from it."""
    return None if value.get("ph") in ("s", "f") else value


def _head(head: dict[str, Any]) -> Trace:
    workers = tuple(
        WorkerTrace(
            worker=_integer(worker["worker"]),
            dp_rank=_integer(worker["dp_rank"]),
            stages=tuple(map(_integer, worker["stages"])),
            spans=(),
            samples=(),
        )
        for worker in head["workers"]
    )
    if len({worker.worker for worker in workers}) < len(workers):
        raise ValueError("a worker is there twice")
    return Trace(
        job=_text(head["job"]),
        schedule=_text(head["schedule"]),
        origin=_real(head["origin"]),
        clock_error_seconds=_real(head["clock_error_seconds"]),
        workers=workers,
    )


def _add(event: dict[str, Any] | None, parts: dict[int, _Part]) -> None:
    """Put a measured event into the part of its worker."""
    part = None if event is None else parts.get(event["pid"])
    if event is None or part is None:
        return
    match event["ph"]:
        case "X":
            args, start = event["args"], _nanoseconds(event["ts"])
            if _nanoseconds(event["dur"]) < 0 or _integer(args["step"]) < 0:
                raise ValueError("dur and step cannot be below 0")
            part.spans.append(
                Span(
                    track=_TRACKS[event["cat"]],
                    name=_text(args["kind"]),
                    start=_nanoseconds(args.get("posted", event["ts"])) / 1e9,
                    end=(start + _nanoseconds(event["dur"])) / 1e9,
                    step=_integer(args["step"]),
                    stage=_optional(args, "stage"),
                    microbatch=_optional(args, "microbatch"),
                    peer=_optional(args, "peer"),
                    num_bytes=_optional(args, "bytes"),
                    embeddings=_nanoseconds(args.get("embeddings", 0)) / 1e9,
                    layers=_nanoseconds(args.get("layers", 0)) / 1e9,
                    head=_nanoseconds(args.get("head", 0)) / 1e9,
                )
            )
        case "C" if event["name"] == IN_FLIGHT:
            time, in_flight = _nanoseconds(event["ts"]) / 1e9, _integer(event["args"]["microbatches"])
            part.samples.append(Sample(time=time, in_flight=in_flight, memory_bytes=None))
        case "C" if event["name"] == MEMORY:  # stands right behind the one that it belongs to
            if not part.samples:
                raise ValueError("no sample stands before it")
            part.samples[-1] = replace(part.samples[-1], memory_bytes=_integer(event["args"]["bytes"]))


def _reason(error: Exception) -> str:
    return f"{error.args[0]!r} is missing or unknown" if isinstance(error, KeyError) else str(error)


def _nanoseconds(microseconds: object) -> int:
    return round(_real(microseconds) * 1000)


def _optional(args: dict[str, Any], key: str) -> int | None:
    return None if key not in args else _integer(args[key])


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no integer")
    return value


def _real(value: object) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    if not math.isfinite(value):  # type: ignore[arg-type]
        raise ValueError(f"{value!r} is not finite")
    return float(value)  # type: ignore[arg-type]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
