"""Gives microbatches to a pattern of ops."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from coordinator.schedule.actions import Action, Op

StageOp = tuple[int, Op]
"""A stage and what it does, of whichever microbatch is next."""


def numbered(pattern: Iterable[StageOp]) -> tuple[Action, ...]:
    """Return ``pattern`` with microbatches: each stage counts its forwards and its backwards from 0 up.

    ``I`` counts as a backward; ``W`` is that of the stage's oldest ``I`` without one.
    """
    forwards: Counter[int] = Counter()
    backwards: Counter[int] = Counter()
    waiting: defaultdict[int, deque[int]] = defaultdict(deque)
    actions = []
    for stage, op in pattern:
        if op is Op.WEIGHT_GRADIENT:
            microbatch = waiting[stage].popleft()
        else:
            count = forwards if op is Op.FORWARD else backwards
            microbatch = count[stage]
            count[stage] += 1
        if op is Op.INPUT_GRADIENT:
            waiting[stage].append(microbatch)
        actions.append(Action(stage, op, microbatch))
    return tuple(actions)
