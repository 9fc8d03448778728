"""Runs worker lists on modelled workers and channels: what starts when, and what never does."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.schedule.actions import Action, Instruction, Op, PlanError
from coordinator.schedule.channels import Channel, channel_of, receive_of
from coordinator.schedule.placement import Placement


@dataclass(frozen=True, slots=True)
class Span:
    """When one compute action runs, from the start of the step."""

    start: float
    end: float
    action: Action


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
    durations: Mapping[Op, float],
    latency: float,
) -> tuple[tuple[Span, ...], ...]:
    """Return the spans of each worker's compute actions, in their order.

    A worker takes its instructions one by one. A compute action starts when its own receive has
    completed. Posting a transfer takes no time, and a send never holds the worker up. The n-th receive
    of a channel completes ``latency`` after its n-th send was posted, whatever the two are called
    (see Note [One channel per ordered pair and kind]). ``REDUCE`` and ``STEP`` take no time.

    Raises:
        DeadlockError: Not every instruction can run.
    """
    run = _Run(workers, placement, durations, latency)
    ready = deque(range(len(workers)))
    while ready:
        ready.extend(run.advance(ready.popleft()))
    waiting = {w: at for w, at in enumerate(run.position) if at < len(workers[w])}
    if waiting:
        raise DeadlockError(waiting)
    return tuple(tuple(spans) for spans in run.spans)


class _Run:
    """One execution: how far each worker is, and what has been posted on each channel."""

    def __init__(
        self,
        workers: Sequence[Sequence[Instruction]],
        placement: Placement,
        durations: Mapping[Op, float],
        latency: float,
    ) -> None:
        self._workers, self._placement = workers, placement
        self._durations, self._latency = durations, latency
        self.position = [0] * len(workers)
        self.spans: list[list[Span]] = [[] for _ in workers]
        self._arrivals: defaultdict[Channel, list[float]] = defaultdict(list)
        self._num_receives: Counter[Channel] = Counter()
        self._tickets: dict[Action, tuple[Channel, int]] = {}
        """Which message of which channel a posted receive gets."""

    def advance(self, worker: int) -> set[int]:
        """Run ``worker`` until it waits or is done; return the workers that it sent something to."""
        reached: set[int] = set()
        instructions = self._workers[worker]
        while self.position[worker] < len(instructions):
            instruction = instructions[self.position[worker]]
            if isinstance(instruction, Action):
                if instruction.op.is_compute:
                    arrival = self._arrival(instruction)
                    if arrival is None:
                        break
                    start = max(self._now(worker), arrival)
                    self.spans[worker].append(Span(start, start + self._durations[instruction.op], instruction))
                else:
                    reached |= self._post(worker, instruction)
            self.position[worker] += 1
        return reached

    def _now(self, worker: int) -> float:
        """Return when the worker's last compute action ended."""
        return self.spans[worker][-1].end if self.spans[worker] else 0.0

    def _arrival(self, compute: Action) -> float | None:
        """Return when the input from another worker is there; ``None`` if nothing has brought it yet."""
        receive = receive_of(compute, self._placement)
        if receive is None:
            return 0.0
        if receive not in self._tickets:
            return None
        channel, number = self._tickets[receive]
        arrivals = self._arrivals[channel]
        return arrivals[number] if number < len(arrivals) else None

    def _post(self, worker: int, transfer: Action) -> set[int]:
        """Post a transfer; return the receiver where it is a send."""
        channel = channel_of(transfer, self._placement)
        if transfer.op in (Op.SEND_ACTIVATION, Op.SEND_GRADIENT):
            self._arrivals[channel].append(self._now(worker) + self._latency)
            return {channel.receiver}
        self._tickets[transfer] = (channel, self._num_receives[channel])
        self._num_receives[channel] += 1
        return set()
