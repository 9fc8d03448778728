"""Puts transfers and the step's end into a compute order."""

from collections.abc import Sequence

from coordinator.schedule.actions import Action, Barrier, Instruction, Op
from coordinator.schedule.channels import receive_of, send_of
from coordinator.schedule.placement import Placement

STEP_END = (Barrier(Op.REDUCE), Barrier(Op.STEP))
"""How each worker's list ends where a step changes weights."""


def lower(order: Sequence[Action], *, placement: Placement) -> tuple[Instruction, ...]:
    """Return one worker's compute ``order`` with its receives and sends.

    The receive of compute action k+1 stands before compute action k, so that the message travels
    while k runs; the send of k's result stands right behind k. Stages on one worker need no
    transfer between them. Each channel is used in compute order at both ends; where two workers'
    orders disagree, the checker refuses the plan.
    """
    receives = [receive_of(action, placement) for action in order]
    lowered: list[Instruction | None] = [*receives[:1]]
    for index, action in enumerate(order):
        lowered += [*receives[index + 1 : index + 2], action, send_of(action, placement)]
    return tuple(instruction for instruction in lowered if instruction is not None)
