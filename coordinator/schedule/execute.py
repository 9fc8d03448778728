"""Runs worker lists on modelled workers and channels: what starts when, and what never does."""

from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coordinator.schedule.actions import COMPUTE, Action, Instruction, Op, PlanError
from coordinator.schedule.channels import Kind, borders
from coordinator.schedule.placement import Placement


class DeadlockError(PlanError):
    """Every worker that is not done waits for a message that never comes."""

    def __init__(self, waiting: Mapping[int, int]) -> None:
        super().__init__(f"deadlock, waiting at {dict(waiting)} (worker: position)")
        self.waiting = dict(waiting)
        """Position in its list at which each worker waits."""


def execute(
    workers: Sequence[Sequence[Instruction]],
    *,
    placement: Placement,
    duration: Callable[[Action], float],
    latency: Callable[[int, int], float],
    free: Sequence[float] | None = None,
) -> tuple[Sequence[float], ...]:
    """Return when each worker's compute actions start, in their order.

    A worker takes its instructions one by one. A compute action starts when its input from another worker is
    there, and takes what ``duration`` says. Posting a transfer takes no time, and a send never holds the worker
    up. What a send carries is there ``latency`` of (sender's stage, receiver's stage) after it was posted: the
    receive stands before its use, and nothing waits in front of it on its channel (the rules that ``check`` proves
    before it runs the lists). ``REDUCE`` and ``STEP`` take no time. Worker w begins at ``free[w]``, or at 0.

    Raises:
        DeadlockError: Not every instruction can run.
    """
    run = _Run(workers, placement, duration, latency, free or [0.0] * len(workers))
    ready = deque(range(len(workers)))
    while ready:
        ready.extend(run.advance(ready.popleft()))
    waiting = {w: at for w, at in enumerate(run.position) if at < len(workers[w])}
    if waiting:
        raise DeadlockError(waiting)
    return tuple(run.starts)


_INPUTS: Mapping[Op, Kind | None] = {
    Op.FORWARD: Kind.ACTIVATION,
    Op.BACKWARD: Kind.GRADIENT,
    Op.INPUT_GRADIENT: Kind.GRADIENT,
    Op.WEIGHT_GRADIENT: None,
}
"""What a compute op waits for, where it comes from another worker."""

Inbox = dict[int, float]
"""By microbatch, when a message that is not used yet is there."""


@dataclass(frozen=True, slots=True)
class _Sends:
    """Where a send op of one stage leads."""

    inbox: Inbox
    receiver: int
    latency: float


class _Run:
    """One execution: how far each worker is, and what is on its way to each stage."""

    def __init__(
        self,
        workers: Sequence[Sequence[Instruction]],
        placement: Placement,
        duration: Callable[[Action], float],
        latency: Callable[[int, int], float],
        free: Sequence[float],
    ) -> None:
        self._workers, self._duration = workers, duration
        self.position = [0] * len(workers)
        self.starts: list[array[float]] = [array("d") for _ in workers]
        self._free = list(free)
        """When each worker's last compute action ends."""
        inboxes: dict[tuple[int, Kind], Inbox] = {}
        self._sends: dict[tuple[int, Op], _Sends] = {}
        for border in borders(placement):
            inbox = inboxes[border.receiver, border.kind] = {}
            self._sends[border.sender, border.send_op] = _Sends(
                inbox, placement.worker_of(border.receiver), latency(border.sender, border.receiver)
            )
        self._inboxes = {
            (stage, op): inboxes.get((stage, kind)) if kind else None
            for stage in range(placement.num_stages)
            for op, kind in _INPUTS.items()
        }

    def advance(self, worker: int) -> set[int]:
        """Run ``worker`` until it waits or is done; return the workers that it sent something to."""
        reached: set[int] = set()
        instructions, starts, now = self._workers[worker], self.starts[worker], self._free[worker]
        inboxes, sends, duration = self._inboxes, self._sends, self._duration
        end = len(instructions)
        for position in range(self.position[worker], end):
            action = instructions[position]
            if not isinstance(action, Action):
                continue
            stage, op, microbatch = action
            if op in COMPUTE:
                inbox = inboxes[stage, op]
                if inbox is not None:
                    arrival = inbox.pop(microbatch, None)
                    if arrival is None:
                        end = position
                        break
                    now = max(now, arrival)
                starts.append(now)
                now += duration(action)
            elif (stage, op) in sends:
                send = sends[stage, op]
                send.inbox[microbatch] = now + send.latency
                reached.add(send.receiver)
        self.position[worker], self._free[worker] = end, now
        return reached
