"""What the coordinator remembers: frozen values, as the store keeps them. Times are Unix seconds."""

import enum
from dataclasses import dataclass


class JobState(enum.StrEnum):
    """Life of a job; the values are what people read."""

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RECOVERING = "RECOVERING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """What ended a job that FAILED."""

    type: str
    """Exception class, or signal, exit, stuck, silent, lost, timeout, data, protocol, job, coordinator."""
    message: str
    worker: int | None = None
    stage: int | None = None
    step: int | None = None
    log: str = ""
    """Log file, relative to the job's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One change of a job's state."""

    state: JobState
    reason: str
    attempt: int
    step: int
    """Last committed step."""
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job."""

    id: str
    name: str
    spec_json: str
    digest: str
    """Of the spec; equal specs have equal digests."""
    owner: str
    """Coordinator process that the job belongs to."""
    num_slots: int
    """Slots that it needs, all at once."""
    state: JobState
    reason: str
    created: float
    attempt: int = 0
    step: int = 0
    """Last committed step; 0 before the first."""
    total_steps: int | None = None
    epoch: int = 0
    loss: float | None = None
    """Of the last committed step; absent where it was not finite."""
    started: float | None = None
    ended: float | None = None
    missing_slots: int = 0
    bubble_fraction: float | None = None
    """Idle share of a step that the plan cannot avoid."""
    skipped_steps: int = 0
    """Committed steps that left the weights as they were."""
    priority: int = 0
    """Place in the queue: the higher goes first, equal ones in the order they came."""
    facts: str | None = None
    """What the plan that runs was made of, as JSON text; absent where nothing was kept."""
    start_step: int = 0
    """Step that the job began after: 0, or that of the checkpoint that it was started from."""
    error: JobError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """One worker of a job's present or last attempt."""

    worker: int
    stages: tuple[int, ...]
    dp_rank: int
    host: str
    state: str
    """assigned, loading, ready, running or ended."""
    pid: int = 0
    log: str = ""
    parameters: int | None = None
    """Elements of its own parameters."""
    peak_bytes: int | None = None
    """Peak resident bytes while loading."""
    last_progress: float | None = None
    busy_seconds: float = 0.0
    idle_seconds: float = 0.0
    stage_busy_seconds: tuple[float, ...] = ()
    """What ``busy_seconds`` is the sum of, one for each of ``stages``; none where it is not known apart."""
    agent: str = ""
    """Agent on whose slot it runs; empty where that was not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One committed step; a line of ``steps.jsonl``."""

    step: int
    epoch: int
    loss: float | None
    """Absent where it was not finite."""
    grad_norm: float | None
    """Absent where the step was skipped or the norm was not finite."""
    learning_rate: float
    examples: int
    tokens: int
    padded_tokens: int
    seconds: float
    """Since the commit before it, or since the workers were ready."""
    skipped: bool
    """Whether the weights stayed as they were."""
    loss_scale: float | None = None
    """What the loss was multiplied by before its backward; fp16 only."""
    rows: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    """Row ids per replica and microbatch, where the job asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """One evaluation; a line of ``eval.jsonl``."""

    step: int
    """Training step whose weights were evaluated."""
    split: str
    examples: int
    loss: float | None
    metrics: tuple[tuple[str, float | None], ...]
    """Name and value; an undefined one has no value."""
    reason: str | None = None
    """Why a value is undefined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who serves a state folder."""

    epoch: int
    """How many have served it so far, this one with them."""
    owner: str
    """Coordinator process."""
    address: str
    """Where it listens, host:port; empty before it does."""
    beat: float
    """When it last said that it lives, in Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job with everything that is told of it."""

    record: JobRecord
    history: tuple[StateChange, ...] = ()
    workers: tuple[WorkerRecord, ...] = ()
    recent_steps: tuple[StepRecord, ...] = ()
    """The last steps, ascending; speed is measured over them."""

    @property
    def examples_per_second(self) -> float | None:
        """Examples a second over the recent steps."""
        seconds = sum(step.seconds for step in self.recent_steps)
        return sum(step.examples for step in self.recent_steps) / seconds if seconds > 0 else None

    @property
    def eta_seconds(self) -> float | None:
        """Seconds to the last planned step at the speed of the recent ones; absent where the job has ended."""
        total = self.record.total_steps
        if total is None or not self.recent_steps or self.record.state.is_final:
            return None
        mean_seconds = sum(step.seconds for step in self.recent_steps) / len(self.recent_steps)
        return max(0, total - self.record.step) * mean_seconds
