"""What passes between the workers of one process: in memory, and only one of them runs at a time."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from stage_worker.comm_place import Place
from stage_worker.engine.transport import Departure, Message, PeerLostError


@dataclass
class Wire:
    """What the workers share. One of them has the turn, until it waits or ends."""

    turn: threading.Condition = field(default_factory=threading.Condition)
    messages: dict[tuple[int, int, Message], torch.Tensor] = field(default_factory=dict)
    """By sender, receiver and what was announced."""
    parts: defaultdict[tuple[object, ...], dict[int, torch.Tensor]] = field(default_factory=lambda: defaultdict(dict))
    """Addends of each sum by worker."""
    running: int = 0
    """Workers that did not end."""
    waiting: list[Callable[[], bool]] = field(default_factory=list)
    """What those that gave their turn away wait for."""
    stuck: bool = False
    """Whether what they wait for will never be."""

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Give the turn away until ``is_ready``; called by who has it."""
        self.waiting.append(is_ready)
        self.look()
        self.turn.wait_for(lambda: self.stuck or is_ready())
        self.waiting.remove(is_ready)
        if not is_ready():
            raise PeerLostError("what this worker waits for will never come")

    def look(self) -> None:
        """Wake who can go on; see whether nobody can."""
        self.stuck = len(self.waiting) == self.running and not any(is_ready() for is_ready in self.waiting)
        self.turn.notify_all()


def take_turns(wire: Wire, calls: Sequence[Callable[[], None]]) -> list[Exception | None]:
    """Make all calls, each in a thread of its own but only one at a time; return what each one raised."""
    errors: list[Exception | None] = [None] * len(calls)
    wire.running = len(calls)

    def work(worker: int) -> None:
        with wire.turn:
            try:
                calls[worker]()
            except Exception as error:
                errors[worker] = error
            wire.running -= 1
            wire.look()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wire.messages or any(errors), "something was sent that nobody received"
    return errors


@dataclass
class JoinedTransport:
    """One worker's end of the wire."""

    wire: Wire
    place: Place
    sent: list[tuple[Message, int, int]] = field(default_factory=list)
    """What was announced, the receiver, the bytes."""
    received: list[tuple[Message, int]] = field(default_factory=list)
    """What was announced, the sender; in the order of the calls."""
    sums: int = 0
    """Sums that it took part in."""

    def send(self, tensor: torch.Tensor, message: Message, *, to_worker: int) -> Departure:
        """Lay a copy on the wire."""
        key = (self.place.worker, to_worker, message)
        assert key not in self.wire.messages, f"{message} was sent twice"
        assert (tuple(tensor.shape), tensor.dtype) == (message.shape, message.dtype)
        self.wire.messages[key] = tensor.detach().clone()
        self.sent.append((message, to_worker, tensor.nbytes))
        return Departure(left=time.monotonic())

    def receive(self, message: Message, *, from_worker: int) -> "JoinedReceive":
        """Post a receive."""
        self.received.append((message, from_worker))
        return JoinedReceive(self.wire, (from_worker, self.place.worker, message))

    def flush(self) -> None:
        """Do nothing: what was sent is on the wire."""

    def add_over_replicas(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add in dp rank order."""
        return self._add(tensor, self.place.twins)

    def add_over_stages(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add over the workers of this replica."""
        return self._add(tensor, self.place.replica)

    def close(self) -> None:
        """Do nothing."""

    def _add(self, tensor: torch.Tensor, workers: tuple[int, ...]) -> torch.Tensor:
        self.sums += 1
        parts = self.wire.parts[workers, self.sums]
        parts[self.place.worker] = tensor.detach().clone()
        self.wire.wait_until(lambda: len(parts) == len(workers))
        total = torch.zeros_like(tensor)
        for worker in workers:
            total += parts[worker]
        return total


@dataclass
class JoinedReceive:
    """A posted receive."""

    wire: Wire
    key: tuple[int, int, Message]

    def wait(self) -> torch.Tensor:
        """Take it off the wire."""
        self.wire.wait_until(lambda: self.key in self.wire.messages)
        return self.wire.messages.pop(self.key)
