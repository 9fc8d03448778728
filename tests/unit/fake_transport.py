"""Transports of one thread: one that moves nothing and writes down what it was told, one that moves in memory."""

import time
from dataclasses import dataclass, field

import torch

from stage_worker.engine.transport import Departure, Message, PeerLostError


@dataclass
class FakeTransport:
    """Hands out ``arriving`` for every receive; sums are over one worker."""

    arriving: torch.Tensor | None = None
    """What a receive returns; None: the peer is lost."""
    sent: list[tuple[torch.Tensor, Message, int]] = field(default_factory=list)
    received: list[tuple[Message, int]] = field(default_factory=list)
    flushes: int = 0

    def send(self, tensor: torch.Tensor, message: Message, *, to_worker: int) -> Departure:
        """Keep it."""
        self.sent.append((tensor, message, to_worker))
        return Departure(left=time.monotonic())

    def receive(self, message: Message, *, from_worker: int) -> "FakeReceive":
        """Write it down."""
        self.received.append((message, from_worker))
        return FakeReceive(self.arriving, from_worker)

    def flush(self) -> None:
        """Count it."""
        self.flushes += 1

    def add_over_replicas(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return tensor

    def add_over_stages(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return tensor

    def close(self) -> None:
        """Do nothing."""


@dataclass
class FakeReceive:
    """A posted receive."""

    tensor: torch.Tensor | None
    worker: int

    def wait(self) -> torch.Tensor:
        """Return a copy, or raise where the peer is lost."""
        if self.tensor is None:
            raise PeerLostError(f"worker {self.worker} closed its connection")
        return self.tensor.clone()


@dataclass
class LinkedTransport(FakeTransport):
    """Moves copies to the other transports with the same ``wire``; a send must come before the wait for it."""

    wire: dict[Message, torch.Tensor] = field(default_factory=dict)

    def send(self, tensor: torch.Tensor, message: Message, *, to_worker: int) -> Departure:
        """Lay a copy on the wire."""
        self.wire[message] = tensor.clone()
        return super().send(tensor, message, to_worker=to_worker)

    def receive(self, message: Message, *, from_worker: int) -> "LinkedReceive":  # type: ignore[override]
        """Write it down."""
        self.received.append((message, from_worker))
        return LinkedReceive(self.wire, message)


@dataclass
class LinkedReceive:
    """A posted receive."""

    wire: dict[Message, torch.Tensor]
    message: Message

    def wait(self) -> torch.Tensor:
        """Take it off the wire."""
        return self.wire.pop(self.message)
