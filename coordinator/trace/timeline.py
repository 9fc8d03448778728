"""What the workers of a job did and when: as measured, or as predicted of a plan."""

import enum
from dataclasses import dataclass


class Track(enum.StrEnum):
    """What of a worker a span was on."""

    COMPUTE = "compute"
    SEND = "send"
    RECEIVE = "receive"
    DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time on one track of one worker."""

    track: Track
    name: str
    """On COMPUTE an op (``F B I W``) or ``step`` where the worker was busy, else what it waited for: ``activation``,
    ``gradient``, ``send``, ``data``, ``command``, ``reduce``, ``checkpoint``, ``other``. On SEND and RECEIVE what
    travels: ``activation``, ``gradient``, ``shared``. On DATA ``read``."""
    start: float
    """In seconds on the trace's clock."""
    end: float
    step: int
    """Training step, from 1; of an evaluation the step after which it ran."""
    stage: int | None = None
    """Global stage. Of a transfer, at both ends, the stage whose result travels: its output as an activation, its
    input's gradient as a gradient; of a shared parameter's sum the leg of its way."""
    microbatch: int | None = None
    """Of a shared parameter's sum the parameter's number."""
    peer: int | None = None
    """The worker at the other end of a transfer."""
    num_bytes: int | None = None
    embeddings: float = 0.0
    """Seconds of an op that went into the embeddings of a first stage."""
    layers: float = 0.0
    """Seconds of an op that went into layers."""
    head: float = 0.0
    """Seconds of an op that went into the head of a last stage, the loss included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a worker held at one moment."""

    time: float
    """In seconds on the trace's clock."""
    in_flight: int
    """Microbatches of which a stage had begun the forward and not ended the backward."""
    memory_bytes: int | None
    """None where nobody measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTrace:
    """One worker's part; spans in order of their start."""

    worker: int
    dp_rank: int
    stages: tuple[int, ...]
    spans: tuple[Span, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """All workers of a job over some of its steps."""

    job: str
    schedule: str
    origin: float
    """Unix seconds of the trace's time 0."""
    clock_error_seconds: float
    """How far the clocks of two workers may be apart."""
    workers: tuple[WorkerTrace, ...]
