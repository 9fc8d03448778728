"""How many activations a worker holds."""

from collections.abc import Sequence

from coordinator.schedule.actions import Action, Instruction, Op


def peak_in_flight(instructions: Sequence[Instruction]) -> tuple[int, int]:
    """Return the most stage activations that a worker holds at once, and the first position where it does.

    An activation is held from the start of its forward to the end of its backward; a forward
    without a backward holds it only while it runs.
    """
    kept = {(i.stage, i.microbatch) for i in instructions if isinstance(i, Action) and i.op is Op.BACKWARD}
    held = peak = peak_position = 0
    for position, instruction in enumerate(instructions):
        if not isinstance(instruction, Action) or not instruction.op.is_compute:
            continue
        if instruction.op is Op.FORWARD:
            held += 1
            if held > peak:
                peak, peak_position = held, position
        if instruction.op is Op.BACKWARD or (instruction.stage, instruction.microbatch) not in kept:
            held -= 1
    return peak, peak_position
