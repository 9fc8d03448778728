"""The slots that agents offer: leases, and who gets them. Pure: values in, values out, time passed in.

Admission is first come, first served, all slots of a job or none. A job that
does not fit keeps those behind it waiting, so that a large job is never
starved by small ones; only a job that needs more slots than there are at all
is passed, because waiting for it would keep the others waiting for machines
that nobody may ever start.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from takt.rpc.errors import TaktError

FORGET_SECONDS = 600.0
"""How long a lost slot is still listed."""


class SlotTakenError(TaktError):
    """Another agent, which lives, offers the same slot."""


class SlotState(enum.StrEnum):
    """What a slot is doing; the values are what people read."""

    FREE = "free"
    BUSY = "busy"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What one agent offers. Times are seconds of the clock that the caller uses throughout."""

    agent: str
    host: str
    number: int
    """Slot number on the host; (host, number) is unique."""
    device: str
    pid: int
    metrics_address: str
    heard_at: float
    state: SlotState = SlotState.FREE
    job: str = ""
    """Job that it works for, or worked for when it was lost."""
    worker: int | None = None
    """Its worker there; None also where its executor is one that no run wants any more."""
    stopping: bool = False
    """Whether its agent was told to stop: it gets no new work."""

    @property
    def key(self) -> tuple[str, int]:
        """What slots are sorted by and workers are counted over."""
        return self.host, self.number


@dataclass(frozen=True, slots=True)
class Demand:
    """What a queued job asks for."""

    job: str
    num_slots: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a job stays in the queue."""

    job: str
    reason: str
    missing_slots: int


@dataclass(frozen=True, slots=True)
class Admission:
    """What a look at the queue found."""

    admitted: str | None
    """The job that gets its slots now."""
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """All known slots, by (host, number)."""

    slots: tuple[Slot, ...] = ()

    def slot(self, agent: str) -> Slot | None:
        """Return the slot of an agent, None where it offers none."""
        return next((slot for slot in self.slots if slot.agent == agent), None)

    def holder(self, key: tuple[str, int]) -> Slot | None:
        """Return the slot with a host and number, None where nobody has offered it."""
        return next((slot for slot in self.slots if slot.key == key), None)

    def joined(self, offer: Slot) -> "Membership":
        """Take an offer on; it replaces a lost slot, or an older offer of the same agent.

        Raises:
            SlotTakenError: another agent that lives offers the slot.
        """
        present = self.holder(offer.key)
        if present is not None and present.agent != offer.agent and present.state is not SlotState.LOST:
            raise SlotTakenError(
                f"slot {offer.number} of {offer.host} is offered by another agent (pid {present.pid}); "
                "stop that one, or pass another --slot"
            )
        others = [slot for slot in self.slots if slot.key != offer.key and slot.agent != offer.agent]
        return Membership(tuple(sorted([*others, offer], key=lambda slot: slot.key)))

    def heard(self, agent: str, now: float) -> "Membership":
        """Renew an agent's lease."""
        return self._with(agent, heard_at=now)

    def stopping(self, agent: str) -> "Membership":
        """Note that an agent ends soon."""
        return self._with(agent, stopping=True)

    def left(self, agent: str) -> "Membership":
        """Forget an agent that said goodbye."""
        return Membership(tuple(slot for slot in self.slots if slot.agent != agent))

    def lost(self, agent: str) -> "Membership":
        """Keep an agent's slot on the list as lost."""
        return self._with(agent, state=SlotState.LOST)

    def assigned(self, job: str, agents: Sequence[str]) -> "Membership":
        """Give slots to a job; the order is that of its workers."""
        membership = self
        for worker, agent in enumerate(agents):
            membership = membership._with(agent, state=SlotState.BUSY, job=job, worker=worker)
        return membership

    def freed(self, agent: str) -> "Membership":
        """Take a slot back from its job; a lost one stays lost."""
        slot = self.slot(agent)
        if slot is None or slot.state is not SlotState.BUSY:
            return self
        return self._with(agent, state=SlotState.FREE, job="", worker=None)

    def lapsed(self, now: float, *, lease_seconds: float) -> tuple[str, ...]:
        """Return the agents whose lease has run out."""
        live = (slot for slot in self.slots if slot.state is not SlotState.LOST)
        return tuple(slot.agent for slot in live if now - slot.heard_at > lease_seconds)

    def without_forgotten(self, now: float) -> "Membership":
        """Drop slots that were lost long ago."""
        kept = (s for s in self.slots if s.state is not SlotState.LOST or now - s.heard_at <= FORGET_SECONDS)
        return Membership(tuple(kept))

    def chosen(self, num_slots: int) -> tuple[Slot, ...]:
        """Return the free slots that a job of this size gets: the first ones by (host, number)."""
        return self._free()[:num_slots]

    def admit(self, queue: Iterable[Demand]) -> Admission:
        """Look at the queue, in its order."""
        free, known = len(self._free()), sum(slot.state is not SlotState.LOST for slot in self.slots)
        admitted: str | None = None
        blocker: str | None = None
        waiting: list[Waiting] = []
        for demand in queue:
            missing = max(0, demand.num_slots - free)
            if admitted is None and blocker is None and missing == 0:
                admitted = demand.job
            elif blocker is not None or admitted is not None:
                reason = f"waits behind job {blocker or admitted}, which goes first"
                waiting.append(Waiting(demand.job, reason, missing))
            else:
                waiting.append(Waiting(demand.job, _shortage(demand, missing, free, known), missing))
                blocker = demand.job if demand.num_slots <= known else None
        return Admission(admitted, tuple(waiting))

    def _free(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.state is SlotState.FREE and not slot.stopping)

    def _with(self, agent: str, **changes: object) -> "Membership":
        return Membership(tuple(replace(s, **changes) if s.agent == agent else s for s in self.slots))  # type: ignore[arg-type]


def _shortage(demand: Demand, missing: int, free: int, known: int) -> str:
    text = f"needs {demand.num_slots} slots, {free} of {known} are free, {missing} missing"
    if demand.num_slots > known:
        return f"{text}; start {demand.num_slots - known} more stage workers"
    return f"{text}; waits for other jobs to end"
