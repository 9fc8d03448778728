"""What a microbatch holds on a stage from its forward to the end of its backward, and the most that a worker holds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from coordinator.choices import Recompute
from coordinator.partition import StageSlice
from coordinator.parts import MicrobatchSize, ModelPart, ModelParts
from coordinator.schedule.actions import COMPUTE, Action, Instruction, Op
from coordinator.schedule.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Bytes that one microbatch holds on one stage."""

    kept: int
    """From its forward to the start of its backward."""
    backward: int
    """While its backward runs, what is computed again included."""
    waiting: int
    """Between the halves of a backward that is split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightSizes:
    """What decides the flights of a job."""

    parts: ModelParts
    num_stages: int
    width: int
    """Positions of every row."""
    input_bytes: int
    """Of one position of a stage's input."""
    recompute: Recompute | int | tuple[int, ...]
    """As in the job file."""
    frozen_layers: int | None
    """As in the job file."""

    def flight(self, piece: StageSlice, *, rows: int, is_last_microbatch: bool, splits_backward: bool) -> Flight:
        """Return the flight of a microbatch of so many rows on a stage.

        Layers that are frozen keep nothing on the first stage; on others they are counted as if they were trained,
        which is a little too much.

        Args:
            piece: the stage's layers.
            rows: of the microbatch.
            is_last_microbatch: of the step.
            splits_backward: whether any backward of the stage comes in two halves.
        """
        is_first, is_last = piece.stage == 0, piece.stage == self.num_stages - 1
        frozen = min(self.frozen_layers or 0, piece.num_layers) if is_first else 0
        trains_embeddings = is_first and self.frozen_layers is None
        trained = piece.num_layers - frozen

        def total(size: Callable[[ModelPart], MicrobatchSize], layers: int, *, embeddings: bool, head: bool) -> int:
            parts = self.parts
            used = [(layers, parts.layer), (int(embeddings), parts.embeddings), (int(head), parts.head)]
            used.append((int(any(count for count, _ in used)), parts.stage))
            return round(sum(count * size(part).at(rows=rows, width=self.width) for count, part in used))

        whole = total(_activations, trained, embeddings=trains_embeddings, head=is_last)
        waiting = total(_waiting, trained, embeddings=trains_embeddings, head=is_last)
        again = self._layers_again(piece, is_last_microbatch=is_last_microbatch)
        if again == 0:
            return Flight(kept=whole, backward=whole, waiting=waiting)
        kept = 0 if is_first else rows * self.width * self.input_bytes
        if again is None:
            return Flight(kept=kept, backward=whole, waiting=waiting)
        rest = min(piece.num_layers - again, trained)
        kept += total(_activations, rest, embeddings=False, head=is_last)
        # When the first layers run again, those behind them have gone back; what a split leaves of them waits.
        first = total(_activations, max(again - frozen, 0), embeddings=trains_embeddings, head=False)
        if splits_backward:
            first += total(_waiting, rest, embeddings=False, head=is_last)
        return Flight(kept=kept, backward=max(kept, first), waiting=waiting)

    def _layers_again(self, piece: StageSlice, *, is_last_microbatch: bool) -> int | None:
        """Return how many first layers of a stage run again; None where all of it does, its head and loss too."""
        match self.recompute:
            case Recompute.NONE:
                return 0
            case Recompute.FULL:
                return None
            case Recompute.EXCEPT_LAST:
                return 0 if is_last_microbatch else None
            case tuple():
                return min(self.recompute[piece.stage], piece.num_layers)
            case _:
                return min(self.recompute, piece.num_layers)


def _activations(part: ModelPart) -> MicrobatchSize:
    return part.activation_bytes


def _waiting(part: ModelPart) -> MicrobatchSize:
    return part.waiting_bytes


def peak_flights(instructions: Iterable[Instruction], flights: Mapping[int, Sequence[Flight]]) -> int:
    """Return the most bytes that a worker holds at once for the microbatches in flight.

    Args:
        instructions: its list.
        flights: by stage, of each microbatch of the step.
    """
    held: dict[tuple[int, int], int] = {}
    now = peak = 0
    for action in instructions:
        if not isinstance(action, Action) or action.op not in COMPUTE:
            continue
        key, flight = (action.stage, action.microbatch), flights[action.stage][action.microbatch]
        if action.op is not Op.WEIGHT_GRADIENT:
            most = flight.kept if action.op is Op.FORWARD else flight.backward
            now += most - held.get(key, 0)
            held[key] = most
        peak = max(peak, now)
        if action.op in (Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT):
            left = flight.waiting if action.op is Op.INPUT_GRADIENT else 0
            now += left - held[key]
            held[key] = left
            peak = max(peak, now)
    return peak


def peak_borders(instructions: Sequence[Instruction], message_bytes: Sequence[int], placement: Placement) -> int:
    """Return the most bytes of hidden states and gradients that a worker has received or is to pass on.

    A hidden state counts until a forward takes it, as its activation; a gradient until the end of its backward; what
    is computed until its send, or until a stage of the same worker takes it.

    Args:
        instructions: its list.
        message_bytes: of each microbatch.
        placement: of the stages.
    """
    last = placement.num_stages - 1
    held: set[tuple[bool, int, int]] = set()
    now = peak = 0

    def change(is_there: bool, *, is_gradient: bool, boundary: int, microbatch: int) -> None:
        nonlocal now, peak
        key = (is_gradient, boundary, microbatch)
        if 0 <= boundary < last and (key in held) is not is_there:
            now += message_bytes[microbatch] if is_there else -message_bytes[microbatch]
            peak = max(peak, now)
            held.symmetric_difference_update({key})

    for action in instructions:
        if not isinstance(action, Action):
            continue
        above, below, microbatch = action.stage, action.stage - 1, action.microbatch
        match action.op:
            case Op.RECV_ACTIVATION:
                change(True, is_gradient=False, boundary=below, microbatch=microbatch)
            case Op.FORWARD:
                change(False, is_gradient=False, boundary=below, microbatch=microbatch)
                change(True, is_gradient=False, boundary=above, microbatch=microbatch)
            case Op.SEND_ACTIVATION:
                change(False, is_gradient=False, boundary=above, microbatch=microbatch)
            case Op.RECV_GRADIENT:
                change(True, is_gradient=True, boundary=above, microbatch=microbatch)
            case Op.BACKWARD | Op.INPUT_GRADIENT:
                change(True, is_gradient=True, boundary=below, microbatch=microbatch)
                change(False, is_gradient=True, boundary=above, microbatch=microbatch)
            case Op.SEND_GRADIENT:
                change(False, is_gradient=True, boundary=below, microbatch=microbatch)
    return peak
