"""What must stand in a plan, and what must not."""

from coordinator.schedule.actions import TRANSFERS, Action, Op
from coordinator.schedule.channels import Kind, borders, counterpart
from coordinator.schedule.columns import ABSENT, Columns
from coordinator.schedule.rules import BrokenRuleError, Claim, Rule

_BACKWARDS = (Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)


def check_complete(claim: Claim, columns: Columns) -> None:
    """Return if each stage runs each microbatch once: ``F``, and then ``B`` or ``I`` and ``W``.

    Raises:
        BrokenRuleError: Something is missing, or too much.
    """
    columns.check_once(Rule.COMPLETE)
    for stage in range(claim.placement.num_stages):
        _check_forwards(claim, columns, stage)
        if claim.forward_only:
            _check_forward_only(claim, columns, stage)
        else:
            _check_backwards(claim, columns, stage)


def _check_forwards(claim: Claim, columns: Columns, stage: int) -> None:
    column = columns.of(stage, Op.FORWARD)
    if min(column) == ABSENT:
        worker = claim.placement.worker_of(stage)
        text = f"{Action(stage, Op.FORWARD, column.index(ABSENT))} is missing"
        raise claim.broken(Rule.COMPLETE, worker, claim.end_of(worker), text)


def _check_forward_only(claim: Claim, columns: Columns, stage: int) -> None:
    for op in (*_BACKWARDS, Op.SEND_GRADIENT, Op.RECV_GRADIENT):
        position = max(columns.of(stage, op))
        if position != ABSENT:
            worker = claim.placement.worker_of(stage)
            text = f"{claim.workers[worker][position]} has no place in a forward-only plan"
            raise claim.broken(Rule.COMPLETE, worker, position, text)


def _check_backwards(claim: Claim, columns: Columns, stage: int) -> None:
    worker = claim.placement.worker_of(stage)
    for microbatch, places in enumerate(zip(*(columns.of(stage, op) for op in _BACKWARDS), strict=True)):
        whole, half, other_half = (place != ABSENT for place in places)
        if half == other_half == (not whole):
            continue
        b, i, w = (Action(stage, op, microbatch) for op in _BACKWARDS)
        if whole:
            position = max(places[1:])
            text = f"{claim.workers[worker][position]} is a half of {b}, which stands at {places[0]}"
            raise claim.broken(Rule.COMPLETE, worker, position, text)
        if half or other_half:
            text = f"{i} has no {w}" if half else f"{w} has no {i}"
            raise claim.broken(Rule.COMPLETE, worker, max(places), text)
        raise claim.broken(Rule.COMPLETE, worker, claim.end_of(worker), f"{b} is missing, or {i} and {w}")


def check_transfers(claim: Claim, columns: Columns) -> None:
    """Return if each result that another worker needs has its send and its receive, and nothing else moves.

    Raises:
        BrokenRuleError: A transfer is missing, or moves nothing to another worker.
    """
    columns.check_once(Rule.TRANSFERS)
    needed: set[tuple[int, Op]] = set()
    for border in borders(claim.placement, forward_only=claim.forward_only):
        for stage, op in ((border.sender, border.send_op), (border.receiver, border.receive_op)):
            needed.add((stage, op))
            column = columns.of(stage, op)
            if min(column) == ABSENT:
                raise _missing(claim, columns, Action(stage, op, column.index(ABSENT)), border.kind)
    for stage in range(claim.placement.num_stages):
        for op in TRANSFERS:
            position = max(columns.of(stage, op))
            if position != ABSENT and (stage, op) not in needed:
                worker = claim.placement.worker_of(stage)
                text = f"{claim.workers[worker][position]} has no other end on another worker"
                raise claim.broken(Rule.TRANSFERS, worker, position, text)


def _missing(claim: Claim, columns: Columns, transfer: Action, kind: Kind) -> BrokenRuleError:
    """Return the error for a transfer that does not stand, shown at its other end if that does."""
    worker, other = claim.placement.worker_of(transfer.stage), counterpart(transfer)
    position = columns.of(other.stage, other.op)[other.microbatch]
    if position != ABSENT:
        text = f"{other} has no {transfer} on worker {worker}"
        return claim.broken(Rule.TRANSFERS, claim.placement.worker_of(other.stage), position, text)
    position = columns.made(transfer.stage, kind)[transfer.microbatch]
    return claim.broken(Rule.TRANSFERS, worker, position, f"{claim.workers[worker][position]} has no {transfer}")
