"""The activations and gradients that one step passes over this worker's boundaries."""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch

from stage_worker.engine.commands import Command, Op, StepSetting
from stage_worker.engine.failure import CommandOrderError
from stage_worker.engine.precision import Precision
from stage_worker.engine.transport import Departure, Message, PendingTensor, TransferKind, Transport

_KINDS = {
    Op.SEND_ACTIVATION: TransferKind.ACTIVATION,
    Op.RECV_ACTIVATION: TransferKind.ACTIVATION,
    Op.SEND_GRADIENT: TransferKind.GRADIENT,
    Op.RECV_GRADIENT: TransferKind.GRADIENT,
}

Key = tuple[TransferKind, int, int]
"""Kind, boundary, microbatch."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message that crossed a boundary, in seconds of the worker's clock."""

    message: Message
    peer: int
    """Worker at the other end."""
    is_sent: bool
    start: float
    """When it was posted."""
    end: float
    """When it was seen to have left, or when what arrived was taken."""
    num_bytes: int


class Exchange:
    """Keeps what was computed until its send is commanded, and what was posted until it is needed.

    Between neighbouring stages that are both here nothing is sent: what one computed waits for the other to take it.
    """

    def __init__(
        self,
        transport: Transport,
        setting: StepSetting,
        *,
        stages: Collection[int],
        hidden_size: int,
        precision: Precision,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve one step of the worker's ``stages``; every tensor has shape (rows, width, ``hidden_size``)."""
        self._transport = transport
        self._setting = setting
        self._local = frozenset(stage for stage in stages if stage + 1 in stages)
        self._hidden_size = hidden_size
        self._dtype = precision.boundary_dtype
        self._compute_dtype = precision.compute.dtype
        self._clock = clock
        self._arrivals: dict[Key, _Arrival] = {}
        self._departures: dict[Key, torch.Tensor] = {}
        self._sent: list[tuple[Message, int, float, Departure]] = []
        self._received: list[Transfer] = []
        self.sent_bytes = 0
        self.received_bytes = 0

    def put(self, tensor: torch.Tensor, *, kind: TransferKind, boundary: int, microbatch: int) -> None:
        """Keep a result until it is sent, or taken by the neighbour where that is here."""
        self._departures[kind, boundary, microbatch] = tensor

    def take(self, *, kind: TransferKind, boundary: int, microbatch: int) -> torch.Tensor:
        """Wait for the tensor whose receive was posted, and return it; or the one that the neighbour here computed.

        Raises:
            CommandOrderError: no receive was posted for it, or the neighbour did not compute it yet.
            PeerLostError, TransferError: as ``PendingTensor.wait``.
        """
        if boundary in self._local:
            tensor = self._departures.pop((kind, boundary, microbatch), None)
            if tensor is None:
                raise CommandOrderError(
                    f"the {kind.name.lower()} of microbatch {microbatch} at boundary {boundary} is not computed yet"
                )
            return tensor
        arrival = self._arrivals.pop((kind, boundary, microbatch), None)
        if arrival is None:
            raise CommandOrderError(
                f"no receive was posted for the {kind.name.lower()} of microbatch {microbatch} at boundary {boundary}"
            )
        tensor = arrival.pending.wait()
        message = arrival.message
        self._received.append(
            Transfer(message, arrival.peer, False, arrival.posted, self._clock(), self._bytes(message))
        )
        return tensor.to(self._compute_dtype)

    def send(self, command: Command) -> None:
        """Start to send what a send command names.

        Raises:
            CommandOrderError: it was not computed yet, is sent already, or stays here.
        """
        message = self._message(command)
        tensor = self._departures.pop((message.kind, message.boundary, message.microbatch), None)
        if tensor is None:
            raise CommandOrderError(
                f"there is no {message.kind.name.lower()} of microbatch {message.microbatch} to send"
            )
        posted = self._clock()
        departure = self._transport.send(tensor.to(self._dtype), message, to_worker=command.peer)
        self._sent.append((message, command.peer, posted, departure))
        self.sent_bytes += self._bytes(message)

    def receive(self, command: Command) -> None:
        """Post the receive that a receive command names.

        Raises:
            CommandOrderError: it is posted already, or comes from here.
        """
        message = self._message(command)
        key = (message.kind, message.boundary, message.microbatch)
        if key in self._arrivals:
            raise CommandOrderError(f"the receive of microbatch {message.microbatch} is posted already")
        posted = self._clock()
        pending = self._transport.receive(message, from_worker=command.peer)
        self._arrivals[key] = _Arrival(pending, message, command.peer, posted)
        self.received_bytes += self._bytes(message)

    def transfers(self) -> tuple[Transfer, ...]:
        """Return what crossed; of sends, those that have left."""
        sent = (
            Transfer(message, peer, True, posted, departure.left, self._bytes(message))
            for message, peer, posted, departure in self._sent
            if departure.left is not None
        )
        return (*sent, *self._received)

    def check_empty(self) -> None:
        """Raise CommandOrderError where something was not passed on or not used at the end of the step."""
        for what, keys in (("computed but not passed on", self._departures), ("received but not used", self._arrivals)):
            for kind, boundary, microbatch in keys:
                raise CommandOrderError(
                    f"the {kind.name.lower()} of microbatch {microbatch} at boundary {boundary} was {what}"
                )

    def _message(self, command: Command) -> Message:
        shape = self._setting.microbatches[command.microbatch]
        crosses_above = command.op in (Op.SEND_ACTIVATION, Op.RECV_GRADIENT)
        boundary = command.stage if crosses_above else command.stage - 1
        if boundary in self._local:
            raise CommandOrderError(f"stages {boundary} and {boundary + 1} are both here; nothing moves between them")
        return Message(
            phase=self._setting.phase,
            step=self._setting.step,
            kind=_KINDS[command.op],
            boundary=boundary,
            microbatch=command.microbatch,
            shape=(shape.rows, shape.width, self._hidden_size),
            dtype=self._dtype,
        )

    @staticmethod
    def _bytes(message: Message) -> int:
        return math.prod(message.shape) * message.dtype.itemsize


@dataclass(frozen=True, slots=True)
class _Arrival:
    pending: PendingTensor
    message: Message
    peer: int
    posted: float
