"""What happens to a run: the words that ``run.advance`` is told. What it answers is in ``run_commands``."""

import enum
from dataclasses import dataclass

from coordinator.failure import Fault, FaultKind
from coordinator.records import JobError
from coordinator.start import AgreedState


class ItemKind(enum.Enum):
    """What one item of a run's sequence asks of the workers."""

    TRAIN = enum.auto()
    SAVE = enum.auto()
    EVALUATE = enum.auto()
    STOP = enum.auto()


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the sequence that a run issues."""

    kind: ItemKind
    step: int
    """Step of the phase, from 1: of training, or of the evaluation where it evaluates."""
    after: int
    """Training step whose weights are used: saved, evaluated, or the result of this step."""
    split: str = ""
    """What is evaluated; empty for anything else."""

    def __str__(self) -> str:
        match self.kind:
            case ItemKind.TRAIN:
                return f"step {self.step}"
            case ItemKind.SAVE:
                return f"the checkpoint of step {self.after}"
            case ItemKind.EVALUATE:
                return f"step {self.step} of the evaluation on {self.split} after step {self.after}"
            case ItemKind.STOP:
                return "the end"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one worker reported of one step."""

    worker: int
    loss_sums: tuple[float, ...] = ()
    """One a microbatch, ascending; the last stage's workers only."""
    grad_norm: float | None = None
    learning_rate: float = 0.0
    skipped: bool = False
    loss_scale: float | None = None
    """fp16 only."""
    busy_seconds: tuple[tuple[int, float], ...] = ()
    """Stage and seconds of each time in which it computed."""
    idle_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedShard:
    """One file of a checkpoint, as the worker that wrote it describes it."""

    file: str
    kind: str
    stage: int
    sha256: str
    num_bytes: int


class EndKind(enum.Enum):
    """Why an executor process is gone."""

    EXITED = enum.auto()
    SIGNALLED = enum.auto()
    RELEASED = enum.auto()
    STUCK = enum.auto()
    SILENT = enum.auto()
    NOT_STARTED = enum.auto()


@dataclass(frozen=True, slots=True)
class Started:
    """An agent started the executor of a worker."""

    worker: int
    pid: int
    log: str


@dataclass(frozen=True, slots=True)
class Connected:
    """The executor of a worker opened its stream."""

    worker: int
    pid: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream of a worker's executor has ended; everything it said was read."""

    worker: int


@dataclass(frozen=True, slots=True)
class StoreOpened:
    """The rendezvous store listens."""

    worker: int
    address: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has loaded its layers and joined all groups."""

    worker: int
    parameters: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker has finished a training or evaluation step."""

    kind: ItemKind
    step: int
    result: StepResult


@dataclass(frozen=True, slots=True)
class Saved:
    """A worker's shards of a checkpoint are on disk, or cannot be written."""

    worker: int
    step: int
    shards: tuple[SavedShard, ...]
    agreed: AgreedState
    error: str = ""
    """Why they are not; empty where they are."""
    seconds: float = 0.0
    """From the command to the last file."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """A worker did something that ends no item: some command, or rows of an evaluation."""

    worker: int
    seconds_ago: float = 0.0


@dataclass(frozen=True, slots=True)
class Faulted:
    """Something is wrong: an executor's own failure, or what the coordinator itself met."""

    fault: Fault

    @classmethod
    def met(cls, kind: str, error: Exception) -> "Faulted":
        """Return what the coordinator itself met; ``kind`` is a ``JobError.type``."""
        return cls(Fault(kind=FaultKind.COORDINATOR, error=JobError(type=kind, message=str(error))))


@dataclass(frozen=True, slots=True)
class Ended:
    """The executor process of a worker is gone."""

    worker: int
    kind: EndKind
    exit_code: int = 0
    signal: int = 0
    message: str = ""
    log_tail: str = ""
    stage: int | None = None
    """What it was computing for; None where it computed nothing."""


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The agent of a worker is gone, and with it the executor."""

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Somebody wants the run to end."""

    reason: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The run is to end at the next step boundary, its state saved, and its job is to go on later."""

    reason: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Started
    | Connected
    | Disconnected
    | StoreOpened
    | Ready
    | Reported
    | Saved
    | Progressed
    | Faulted
    | Ended
    | AgentLost
    | CancelAsked
    | StopAsked
    | Tick
)
