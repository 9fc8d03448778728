"""The border to other workers: how the engine moves tensors, whatever moves them."""

import enum
from dataclasses import dataclass
from typing import Protocol

import torch

from stage_worker.engine.commands import Phase


class TransferKind(enum.IntEnum):
    """What a transfer carries: between two neighbouring stages, or between two holders of one parameter."""

    ACTIVATION = 0
    GRADIENT = 1
    SHARED_GRADIENT = 2


class PeerLostError(RuntimeError):
    """The worker at the other end is gone or silent; its own failure explains why."""


class TransferError(RuntimeError):
    """What arrived is not what the command announced."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a command announces about one transfer; both ends must agree on all of it.

    ``boundary`` is the stage below the cut: stage ``boundary`` sends activations to
    stage ``boundary + 1`` and receives gradients from it. Of a shared parameter's sum it is
    the leg of its way, and ``microbatch`` the number of the parameter; see ``engine.shared``.
    """

    phase: Phase
    step: int
    kind: TransferKind
    boundary: int
    microbatch: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(slots=True)
class Departure:
    """A send that was started."""

    left: float | None = None
    """When it was seen to have left, in seconds of ``time.monotonic``; None before."""


class PendingTensor(Protocol):
    """A receive that was posted."""

    def wait(self) -> torch.Tensor:
        """Return the tensor once it is here and verified.

        Raises:
            PeerLostError: the peer is gone, or the group's limit has passed.
            TransferError: another message than the announced one arrived.
        """


class Transport(Protocol):
    """Moves activations and gradients between the stages of one replica.

    Called from the engine thread only. ``send`` and ``receive`` never block.
    Messages match by (phase, step, kind, boundary, microbatch).
    """

    def send(self, tensor: torch.Tensor, message: Message, *, to_worker: int) -> Departure:
        """Copy the tensor and start to send the copy; when it has left is known after ``flush``.

        Raises:
            TransferError: the tensor is not what ``message`` announces.
            PeerLostError: an earlier send failed.
        """

    def receive(self, message: Message, *, from_worker: int) -> PendingTensor:
        """Post a receive."""

    def flush(self) -> None:
        """Wait until every send has left.

        Raises:
            PeerLostError: one could not, or the group's limit has passed.
        """

    def add_over_replicas(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum of the replicas' tensors, added in dp rank order; raise PeerLostError as ``wait`` does."""

    def add_over_stages(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over the workers of this replica; exact where each entry is non-zero on one only.

        Every receive of the step so far is verified when it returns.

        Raises:
            PeerLostError, TransferError: as ``PendingTensor.wait``.
        """

    def close(self) -> None:
        """Let go of all connections; nothing else may be called afterwards."""
