"""Channels between workers, and which transfers a compute action needs.

Note [One channel per ordered pair and kind]
Activations and gradients between two workers use a channel each, per direction. A channel completes
its calls in the order in which they were issued, as an in-order stream does. With fewer channels
1F1B deadlocks; with these every schedule of ours is safe, as long as both ends issue in one order.
"""

import enum
from dataclasses import dataclass

from coordinator.schedule.actions import Action, Op, PlanError
from coordinator.schedule.placement import Placement


class Kind(enum.StrEnum):
    """What a channel carries."""

    ACTIVATION = "activation"
    GRADIENT = "gradient"


@dataclass(frozen=True, slots=True)
class Channel:
    """What one worker sends to another, of one kind."""

    sender: int
    receiver: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}s from worker {self.sender} to worker {self.receiver}"


@dataclass(frozen=True, slots=True)
class Border:
    """Two neighbouring stages on different workers, seen in the direction in which one kind passes it."""

    sender: int
    receiver: int
    kind: Kind

    @property
    def send_op(self) -> Op:
        """What stands on the sender's worker."""
        return Op.SEND_ACTIVATION if self.kind is Kind.ACTIVATION else Op.SEND_GRADIENT

    @property
    def receive_op(self) -> Op:
        """What stands on the receiver's worker."""
        return Op.RECV_ACTIVATION if self.kind is Kind.ACTIVATION else Op.RECV_GRADIENT

    def channel(self, placement: Placement) -> Channel:
        """Return the channel that messages take here; several borders may share one."""
        return Channel(placement.worker_of(self.sender), placement.worker_of(self.receiver), self.kind)


def borders(placement: Placement, *, forward_only: bool = False) -> tuple[Border, ...]:
    """Return the borders that a step passes, by stage; both directions, unless it is ``forward_only``."""
    stages = range(placement.num_stages - 1)
    crossed = [stage for stage in stages if placement.worker_of(stage) != placement.worker_of(stage + 1)]
    forwards = tuple(Border(stage, stage + 1, Kind.ACTIVATION) for stage in crossed)
    backwards = tuple(Border(stage + 1, stage, Kind.GRADIENT) for stage in crossed)
    return forwards if forward_only else forwards + backwards


def counterpart(transfer: Action) -> Action:
    """Return the transfer at the other end: for ``2SEND_F0`` it is ``3RECV_F0``.

    Raises:
        PlanError: ``transfer`` moves nothing.
    """
    match transfer.op:
        case Op.SEND_ACTIVATION:
            return Action(transfer.stage + 1, Op.RECV_ACTIVATION, transfer.microbatch)
        case Op.RECV_ACTIVATION:
            return Action(transfer.stage - 1, Op.SEND_ACTIVATION, transfer.microbatch)
        case Op.SEND_GRADIENT:
            return Action(transfer.stage - 1, Op.RECV_GRADIENT, transfer.microbatch)
        case Op.RECV_GRADIENT:
            return Action(transfer.stage + 1, Op.SEND_GRADIENT, transfer.microbatch)
        case _:
            raise PlanError(f"{transfer} is not a transfer")


def peer_of(transfer: Action, placement: Placement) -> int:
    """Return the worker at the other end of ``transfer``.

    Raises:
        PlanError: ``transfer`` moves nothing, or leads past the first or the last stage.
    """
    return placement.worker_of(counterpart(transfer).stage)


def channel_of(transfer: Action, placement: Placement) -> Channel:
    """Return the channel that ``transfer`` uses; its two ends name the same one.

    Raises:
        PlanError: ``transfer`` moves nothing, or leads past the first or the last stage.
    """
    here, there = placement.worker_of(transfer.stage), peer_of(transfer, placement)
    match transfer.op:
        case Op.SEND_ACTIVATION:
            return Channel(here, there, Kind.ACTIVATION)
        case Op.RECV_ACTIVATION:
            return Channel(there, here, Kind.ACTIVATION)
        case Op.SEND_GRADIENT:
            return Channel(here, there, Kind.GRADIENT)
        case _:
            return Channel(there, here, Kind.GRADIENT)


def receive_of(compute: Action, placement: Placement) -> Action | None:
    """Return the receive that ``compute`` waits for; ``None`` where its input is on its worker already."""
    if compute.op is Op.WEIGHT_GRADIENT:
        return None
    op = Op.RECV_ACTIVATION if compute.op is Op.FORWARD else Op.RECV_GRADIENT
    return _across_workers(Action(compute.stage, op, compute.microbatch), placement)


def send_of(compute: Action, placement: Placement) -> Action | None:
    """Return the send of what ``compute`` yields; ``None`` where it stays on its worker."""
    if compute.op is Op.WEIGHT_GRADIENT:
        return None
    op = Op.SEND_ACTIVATION if compute.op is Op.FORWARD else Op.SEND_GRADIENT
    return _across_workers(Action(compute.stage, op, compute.microbatch), placement)


def _across_workers(transfer: Action, placement: Placement) -> Action | None:
    """Return ``transfer`` if a stage is there on another worker."""
    neighbour = counterpart(transfer).stage
    if not 0 <= neighbour < placement.num_stages:
        return None
    return transfer if placement.worker_of(neighbour) != placement.worker_of(transfer.stage) else None
