"""Where the actions of a plan stand: a column of positions for each op of each stage."""

from array import array
from collections.abc import Sequence

from coordinator.schedule.actions import COMPUTE, TRANSFERS, Action, Op
from coordinator.schedule.channels import Kind
from coordinator.schedule.rules import BrokenRuleError, Claim, Rule

ABSENT = -1

Column = Sequence[int]
"""Positions in the list of the stage's worker, by microbatch; ``ABSENT`` where the action does not stand."""


class Columns:
    """The columns of a claim whose actions stand on their own workers.

    A rule about the lists is then a comparison of columns, which is fast for millions of actions.

    Raises:
        BrokenRuleError: An action stands on another worker, or names no microbatch of the step.
    """

    def __init__(self, claim: Claim) -> None:
        self._columns: dict[tuple[int, Op], array[int]] = {}
        self._twice: dict[Rule, BrokenRuleError] = {}
        for worker, instructions in enumerate(claim.workers):
            columns = self._add_worker(claim, worker)
            for position, action in enumerate(instructions):
                if not isinstance(action, Action):
                    continue
                stage, op, microbatch = action
                column = columns.get((stage, op))
                if column is None or not 0 <= microbatch < claim.num_microbatches:
                    raise _misplaced(claim, worker, position, action)
                if column[microbatch] == ABSENT:
                    column[microbatch] = position
                    continue
                rule = Rule.COMPLETE if op.is_compute else Rule.TRANSFERS
                if rule not in self._twice:
                    text = f"{action} stands at {column[microbatch]} already"
                    self._twice[rule] = claim.broken(rule, worker, position, text)

    def check_once(self, rule: Rule) -> None:
        """Return if no action that ``rule`` is about stands twice.

        Raises:
            BrokenRuleError: One does.
        """
        if rule in self._twice:
            raise self._twice[rule]

    def of(self, stage: int, op: Op) -> Column:
        """Return the column of ``op`` on ``stage``."""
        return self._columns[stage, op]

    def whole_or(self, stage: int, half: Op) -> Column:
        """Return the column of a half of the backward, read from the whole one where they are not split."""
        return array("l", map(max, self.of(stage, Op.BACKWARD), self.of(stage, half)))

    def made(self, stage: int, kind: Kind) -> Column:
        """Return the column of what turns one message of ``kind`` into the next: ``F``, or ``B`` or ``I``."""
        if kind is Kind.ACTIVATION:
            return self.of(stage, Op.FORWARD)
        return self.whole_or(stage, Op.INPUT_GRADIENT)

    def _add_worker(self, claim: Claim, worker: int) -> "dict[tuple[int, Op], array[int]]":
        """Return new columns for the stages of ``worker``."""
        columns = {
            (stage, op): array("l", [ABSENT]) * claim.num_microbatches
            for stage in claim.placement.stages_of(worker)
            for op in COMPUTE | TRANSFERS
        }
        self._columns |= columns
        return columns


def _misplaced(claim: Claim, worker: int, position: int, action: Action) -> BrokenRuleError:
    stages = claim.placement.stages_of(worker)
    if action.stage not in stages:
        several = "s" if len(stages) > 1 else ""
        text = f"{action} is not on its worker, which holds stage{several} {', '.join(map(str, stages))}"
    else:
        text = f"{action} is not in the step, whose last microbatch is {claim.num_microbatches - 1}"
    return claim.broken(Rule.PLACEMENT, worker, position, text)
