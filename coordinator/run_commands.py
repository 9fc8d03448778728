"""What is done about what happens to a run: the words that ``run.advance`` answers with."""

from dataclasses import dataclass

from coordinator.events import Item, SavedShard, StepResult
from coordinator.records import JobError, JobState
from coordinator.start import AgreedState


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a worker's place to its agent."""

    worker: int


@dataclass(frozen=True, slots=True)
class Release:
    """Have the executor of a worker ended after ``grace_seconds``."""

    worker: int
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class SendRendezvous:
    """Tell workers where the groups meet."""

    workers: tuple[int, ...]
    address: str


@dataclass(frozen=True, slots=True)
class Issue:
    """Send an item to the workers that it concerns."""

    item: Item


@dataclass(frozen=True, slots=True)
class CommitStep:
    """Journal a training step; one result a worker, ascending."""

    step: int
    results: tuple[StepResult, ...]


@dataclass(frozen=True, slots=True)
class CommitCheckpoint:
    """All shards of a checkpoint are there: write its manifest."""

    step: int
    shards: tuple[SavedShard, ...]
    agreed: AgreedState
    seconds: float
    """What the slowest worker took to save."""


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """A checkpoint could not be written: remove what there is of it, and say so."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class CommitEvaluation:
    """All rows of an evaluation are there: compute and journal its figures."""

    after: int
    """Training step whose weights were evaluated."""
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeState:
    """Record a new state of the job; nothing follows one that is final."""

    state: JobState
    reason: str
    step: int
    error: JobError | None = None


Command = (
    Assign
    | Release
    | SendRendezvous
    | Issue
    | CommitStep
    | CommitCheckpoint
    | DropCheckpoint
    | CommitEvaluation
    | ChangeState
)
