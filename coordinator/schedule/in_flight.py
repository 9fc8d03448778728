"""How many activations a worker holds."""

from collections.abc import Sequence

from coordinator.schedule.actions import Instruction, Op


def peak_in_flight(instructions: Sequence[Instruction]) -> tuple[int, int]:
    """Return the most stage activations that a worker holds at once, and the first position where it does.

    An activation is held from the start of its ``F`` to the end of its ``B``, or of its ``W`` where the
    backward is split. A list without backwards holds it only while ``F`` runs.
    """
    keeps = any(instruction.op in _RELEASES for instruction in instructions)
    held = peak = peak_position = 0
    for position, instruction in enumerate(instructions):
        op = instruction.op
        if op is Op.FORWARD:
            held += 1
            if held > peak:
                peak, peak_position = held, position
            if not keeps:
                held -= 1
        elif op in _RELEASES:
            held -= 1
    return peak, peak_position


_RELEASES = frozenset({Op.BACKWARD, Op.WEIGHT_GRADIENT})
