"""Puts transfers and the step's end into a compute order."""

from collections.abc import Callable, Sequence

from coordinator.schedule.actions import COMPUTE, TRANSFERS, Action, Barrier, Instruction, Op
from coordinator.schedule.channels import receive_of, send_of
from coordinator.schedule.placement import Placement

STEP_END = (Barrier(Op.REDUCE), Barrier(Op.STEP))
"""How each worker's list ends where a step changes weights."""


def lower(instructions: Sequence[Instruction], *, placement: Placement) -> tuple[Instruction, ...]:
    """Return one worker's list with the receives and sends that it lacks; what is there keeps its order.

    The receive of compute action k+1 stands before compute action k, so that the message travels
    while k runs; the send of k's result stands right behind k. Stages on one worker need no
    transfer between them. In a list without transfers each channel is then used in compute order at
    both ends; where two workers' orders disagree, the checker refuses the plan.
    """
    computes = [i for i in instructions if isinstance(i, Action) and i.op in COMPUTE]
    present = {i for i in instructions if i.op in TRANSFERS}
    receives = _missing(receive_of, computes, present, placement)
    sends = _missing(send_of, computes, present, placement)
    lowered: list[Instruction | None] = [*receives[:1]]
    following = zip([*receives[1:], None], sends, strict=False)  # no pair where nothing computes
    for instruction in instructions:
        if instruction.op in COMPUTE:
            receive, send = next(following)
            lowered += (receive, instruction, send)
        else:
            lowered.append(instruction)
    return tuple(instruction for instruction in lowered if instruction is not None)


def _missing(
    transfer_of: Callable[[Action, Placement], Action | None],
    computes: Sequence[Action],
    present: set[Instruction],
    placement: Placement,
) -> list[Action | None]:
    """Return for each compute action its transfer, or ``None`` where it needs none or has it already."""
    kinds = {(stage, op) for stage, op, _ in computes if 0 <= stage < placement.num_stages}
    ops = {kind: transfer.op for kind in kinds if (transfer := transfer_of(Action(*kind, 0), placement))}
    transfers: list[Action | None] = []
    for stage, op, microbatch in computes:
        transfer_op = ops.get((stage, op))
        transfer = None if transfer_op is None else Action(stage, transfer_op, microbatch)
        transfers.append(None if transfer in present else transfer)
    return transfers
