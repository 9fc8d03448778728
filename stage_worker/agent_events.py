"""The words of an agent: what happens to it, and what it decides. Pure values."""

import enum
from dataclasses import dataclass

from stage_worker.record import Snapshot


class EndCause(enum.Enum):
    """Why an executor is gone."""

    EXITED = enum.auto()
    SIGNALLED = enum.auto()
    RELEASED = enum.auto()
    STUCK = enum.auto()
    SILENT = enum.auto()
    NOT_STARTED = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One worker's place in one attempt of a job, as the agent needs it."""

    job: str
    attempt: int
    worker: int
    dp_rank: int
    stages: tuple[int, ...]
    lease_seconds: float
    step_timeout_seconds: float
    assignment: str
    """The whole assignment as JSON, for the executor."""

    @property
    def log(self) -> str:
        """Log file of its executor, relative to the job's folder."""
        return f"logs/worker-{self.worker}.log"


# Events.
@dataclass(frozen=True, slots=True)
class Assigned:
    """The coordinator wants an executor."""

    work: Work


@dataclass(frozen=True, slots=True)
class Refused:
    """An assignment that must not or cannot be obeyed."""

    job: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The executor could not be started, or did not take its work."""

    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """The coordinator wants an executor gone."""

    job: str
    attempt: int
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Exited:
    """The executor process is gone; ``returncode`` is negative for a signal."""

    returncode: int
    stage: int | None = None
    """What it was computing for."""


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The stream to the coordinator has broken."""

    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """The coordinator has taken the slot on, and what it works on."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Nobody can use an executor here any more: the agent was told to stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; what the executor's record says, where there is an executor."""

    snapshot: Snapshot | None


Event = Assigned | Refused | StartFailed | Released | Exited | CoordinatorLost | CoordinatorFound | Abandoned | Ticked


# Commands.
@dataclass(frozen=True, slots=True)
class StartExecutor:
    """Start an executor, or wake the standby, hand it the work, and say that it has started."""

    work: Work


@dataclass(frozen=True, slots=True)
class KillExecutor:
    """Kill the executor's whole process group."""


@dataclass(frozen=True, slots=True)
class StartStandby:
    """Start an executor without work."""


@dataclass(frozen=True, slots=True)
class SayEnded:
    """Tell the coordinator that an executor is gone."""

    job: str
    attempt: int
    cause: EndCause
    message: str
    exit_code: int = 0
    signal: int = 0
    log: str = ""
    """Log file, relative to the job's folder; empty where it never started."""
    stage: int | None = None
    """Stage that it was computing for."""


Command = StartExecutor | KillExecutor | StartStandby | SayEnded
