"""What must stand before what, on one worker and at the two ends of a channel."""

import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

from coordinator.schedule.actions import Op
from coordinator.schedule.channels import Border, Channel, borders
from coordinator.schedule.columns import Column, Columns
from coordinator.schedule.rules import BrokenRuleError, Claim, Rule


def check_dependencies(claim: Claim, columns: Columns) -> None:
    """Return if what each action uses from its own worker stands before it.

    Raises:
        BrokenRuleError: Something stands behind its use. Nothing is missing.
    """
    for stage, needed, user in _dependencies(claim, columns):
        if all(map(operator.le, needed, user)):  # equal where one action is both, as B is I and W
            continue
        worker = claim.placement.worker_of(stage)
        before, after = next((a, b) for a, b in zip(needed, user, strict=True) if a > b)
        instructions = claim.workers[worker]
        text = f"{instructions[after]} needs {instructions[before]}, which stands behind it at {before}"
        raise claim.broken(Rule.DEPENDENCY, worker, after, text)


def _dependencies(claim: Claim, columns: Columns) -> Iterator[tuple[int, Column, Column]]:
    """Yield a stage, and two columns of its worker: what is needed, and what uses it."""
    placement = claim.placement
    for stage in range(placement.num_stages):
        forward = columns.of(stage, Op.FORWARD)
        if stage > 0 and placement.worker_of(stage - 1) == placement.worker_of(stage):
            yield stage, columns.of(stage - 1, Op.FORWARD), forward
        if claim.forward_only:
            continue
        backward = columns.whole_or(stage, Op.INPUT_GRADIENT)
        yield stage, forward, backward
        yield stage, backward, columns.whole_or(stage, Op.WEIGHT_GRADIENT)
        if stage > 0 and placement.worker_of(stage - 1) == placement.worker_of(stage):
            yield stage, backward, columns.whole_or(stage - 1, Op.INPUT_GRADIENT)
    for border in borders(placement, forward_only=claim.forward_only):
        sender, receiver = border.sender, border.receiver
        yield sender, columns.made(sender, border.kind), columns.of(sender, border.send_op)
        yield receiver, columns.of(receiver, border.receive_op), columns.made(receiver, border.kind)


def check_ascending(claim: Claim, columns: Columns) -> tuple[str, ...]:
    """Return a notice for each stage that does not sum its gradients in microbatch order.

    Raises:
        BrokenRuleError: There is one, and the claim says that there is none.
    """
    if claim.forward_only:
        return ()
    notices = []
    for stage in range(claim.placement.num_stages):
        worker = claim.placement.worker_of(stage)
        for half, name in ((Op.INPUT_GRADIENT, "backwards"), (Op.WEIGHT_GRADIENT, "weight gradients")):
            column = columns.whole_or(stage, half)
            if all(map(operator.lt, column, column[1:])):
                continue
            later, earlier = next((a, b) for a, b in pairwise(column) if a > b)
            text = f"{claim.workers[worker][later]} stands behind {claim.workers[worker][earlier]}"
            if claim.ascending:
                raise claim.broken(Rule.ASCENDING, worker, later, text)
            notices.append(
                f"stage {stage} runs its {name} out of order ({text}): "
                "gradients equal those of other schedules to rounding, not to the bit"
            )
            break
    return tuple(notices)


def check_channel_order(claim: Claim, columns: Columns) -> None:
    """Return if the n-th send of each channel is the other end of its n-th receive.

    Raises:
        BrokenRuleError: The two ends disagree. Every message has both ends.
    """
    sharing: defaultdict[Channel, list[Border]] = defaultdict(list)
    for border in borders(claim.placement, forward_only=claim.forward_only):
        sharing[border.channel(claim.placement)].append(border)
    for channel, shared in sharing.items():
        sends = [columns.of(border.sender, border.send_op) for border in shared]
        receives = [columns.of(border.receiver, border.receive_op) for border in shared]
        sent, received = _in_order(sends), _in_order(receives)
        if sent == received:
            continue
        number = next(n for n, (a, b) in enumerate(zip(sent, received, strict=True)) if a != b)
        here = _position(sends, sent[number])
        there = _position(receives, received[number])
        marks = {
            (channel.sender, here): f"{claim.workers[channel.sender][here]} is number {number} of the {channel}",
            (channel.receiver, there): f"here it is {claim.workers[channel.receiver][there]}",
        }
        raise BrokenRuleError(Rule.CHANNEL_ORDER, claim.workers, marks)


def _in_order(columns: Sequence[Column]) -> list[int]:
    """Return the messages of ``columns``, counted through them, in the order in which they stand."""
    positions = list(chain.from_iterable(columns))
    return sorted(range(len(positions)), key=positions.__getitem__)


def _position(columns: Sequence[Column], message: int) -> int:
    """Return where a message of ``_in_order`` stands."""
    column, microbatch = divmod(message, len(columns[0]))
    return columns[column][microbatch]
