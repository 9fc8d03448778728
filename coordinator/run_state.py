"""What is known of an admitted job: the frozen state that ``run.advance`` maps to the next one."""

import enum
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.events import Ended, Item, ItemKind, SavedShard, StepResult
from coordinator.failure import Fault
from coordinator.records import JobState
from coordinator.sequence import Sequence
from coordinator.start import AgreedState

START_SECONDS = 120.0
"""Workers must be ready this long after they were assigned."""
RELEASE_GRACE_SECONDS = 1.0
"""After a fault, so that the other workers can still tell theirs."""
END_SECONDS = 10.0
"""Released executors must have ended this long after their grace."""
STOP_SECONDS = 30.0
"""Executors must have ended this long after all work was committed."""
HANG_UP_SECONDS = 5.0
"""The stream of an executor that ended must have closed this long after; then nothing more is read from it."""
REJOIN_SECONDS = 20.0
"""Workers must be back this long after their coordinator was started again; they dial twice a second."""
PROGRESS_MARGIN_SECONDS = 30.0
"""Beyond the step timeout and the lease, after which the agents should have judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One worker's place: what it holds and where it runs."""

    worker: int
    dp_rank: int
    stages: tuple[int, ...]
    agent: str
    host: str

    def __str__(self) -> str:
        noun = "stage" if len(self.stages) == 1 else "stages"
        return f"worker {self.worker} ({noun} {', '.join(map(str, self.stages))}) on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetting:
    """What a run was admitted with."""

    places: tuple[Place, ...]
    """By worker, ascending."""
    sequence: Sequence
    credit: int
    """Steps that may be issued and not yet committed."""
    step_timeout_seconds: float
    lease_seconds: float

    @property
    def progress_seconds(self) -> float:
        """Without any news for so long the run is given up; the agents are to notice earlier."""
        return self.step_timeout_seconds + self.lease_seconds + PROGRESS_MARGIN_SECONDS

    def concerned(self, item: Item) -> frozenset[int]:
        """Return the workers that an item is sent to."""
        return frozenset(p.worker for p in self.places if item.kind is not ItemKind.SAVE or p.dp_rank == 0)


class Life(enum.Enum):
    """How far a worker has come."""

    ASSIGNED = "assigned"
    LOADING = "loading"
    READY = "ready"
    GONE = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker of the run."""

    life: Life = Life.ASSIGNED
    pid: int = 0
    log: str = ""
    """Log file, relative to the job's folder; empty before the executor was started."""
    connected: bool = False
    """Whether its stream is open."""
    ended: Ended | None = None
    """How its process ended, kept until its stream has closed too."""
    ended_at: float = 0.0
    told_fault: bool = False
    """Whether it said itself what is wrong."""
    parameters: int | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outstanding:
    """An item that was issued and is not committed."""

    item: Item
    waiting: frozenset[int]
    """Workers that have not answered."""
    results: tuple[StepResult, ...] = ()
    shards: tuple[SavedShard, ...] = ()
    agreed: AgreedState | None = None
    """What the workers that have saved had alike; None before the first of them."""
    error: str = ""
    """Why a worker could not save; of several the first."""
    seconds: float = 0.0
    """What the slowest worker took to save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Everything that decides what happens next."""

    setting: RunSetting
    state: JobState
    members: tuple[Member, ...]
    started_at: float
    progress_at: float
    """When a worker last finished something."""
    rendezvous: str | None = None
    outstanding: tuple[Outstanding, ...] = ()
    """In the order they were issued."""
    last_issued: Item | None = None
    step: int = 0
    """Last committed training step."""
    faults: tuple[Fault, ...] = field(default=())
    cancel_reason: str | None = None
    stop_reason: str | None = None
    """Why the run ends before its job does."""
    rejoin_by: float | None = None
    """When workers that another coordinator started count as lost, if they have not come back; None where all have."""
    stop_deadline: float | None = None
    """When executors that were told to stop are released."""
    give_up_at: float | None = None
    """When released executors are not waited for any longer; set means that all were released."""

    @property
    def is_over(self) -> bool:
        """Whether the run has ended; where it is RECOVERING, its job goes on in another."""
        return self.state.is_final or self.state is JobState.RECOVERING

    @property
    def releasing(self) -> bool:
        """Whether all executors were released and only their end is waited for."""
        return self.give_up_at is not None

    @property
    def all_gone(self) -> bool:
        """Whether no executor is left."""
        return all(member.life is Life.GONE for member in self.members)

    @property
    def stop_issued(self) -> bool:
        """Whether the workers were told to end."""
        return self.last_issued is not None and self.last_issued.kind is ItemKind.STOP

    @property
    def all_committed(self) -> bool:
        """Whether nothing but the end is awaited of the workers."""
        return self.stop_issued and all(entry.item.kind is ItemKind.STOP for entry in self.outstanding)

    @property
    def evaluating(self) -> bool:
        """Whether an evaluation is under way."""
        return any(entry.item.kind is ItemKind.EVALUATE for entry in self.outstanding)

    @property
    def steps_in_flight(self) -> int:
        """Steps that use up credit."""
        return sum(entry.item.kind in (ItemKind.TRAIN, ItemKind.EVALUATE) for entry in self.outstanding)

    @property
    def complete(self) -> Outstanding | None:
        """What is to be committed next: the first item that waits for nobody; None where one before it waits.

        Checkpoints are written beside the steps that follow them, and hold nothing up.
        """
        for entry in self.outstanding:
            if not entry.waiting:
                return entry
            if entry.item.kind is not ItemKind.SAVE:
                return None
        return None

    def with_member(self, worker: int, **changes: Any) -> "RunState":
        """Return the state with fields of one member changed."""
        member = replace(self.members[worker], **changes)
        return replace(self, members=(*self.members[:worker], member, *self.members[worker + 1 :]))

    def with_issued(self, item: Item, *, is_known: bool = False) -> "RunState":
        """Return the state with an item issued; of one that ``is_known`` to be done nothing is awaited."""
        awaited = () if is_known else (Outstanding(item=item, waiting=self.setting.concerned(item)),)
        return replace(self, outstanding=(*self.outstanding, *awaited), last_issued=item)

    def names(self, workers: frozenset[int] | list[int]) -> str:
        """Return workers as people know them, ascending."""
        return ", ".join(str(self.setting.places[worker]) for worker in sorted(workers))
