"""The rules of a plan, and the error that shows which one is broken where."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.schedule.actions import Instruction, PlanError
from coordinator.schedule.grid import Cell, grid
from coordinator.schedule.placement import Placement


class Rule(enum.StrEnum):
    """What a plan must keep; checked in this order."""

    WORKERS = "one list for each worker"
    PLACEMENT = "each action stands on the worker that holds its stage, and names a microbatch of the step"
    COMPLETE = "each stage runs each microbatch once: its forward, and its backward whole or as two halves"
    TRANSFERS = "each message between two workers has exactly one send and one receive, and nothing else travels"
    DEPENDENCY = "what an action needs from its own worker stands before it"
    ASCENDING = "backwards of a stage, and its weight gradients, in ascending microbatch order"
    CHANNEL_ORDER = "both ends of a channel in one order"
    DEADLOCK = "no deadlock"
    IN_FLIGHT = "no more microbatches in flight than the schedule allows"
    STEP_END = "one REDUCE and then one STEP at the end of each worker, behind every gradient"


class BrokenRuleError(PlanError):
    """Worker lists that are no plan; the text names the rule and shows the place."""

    def __init__(self, rule: Rule, workers: Sequence[Sequence[Instruction]], marks: Mapping[Cell, str]) -> None:
        super().__init__(f"the plan breaks the rule: {rule}\n{grid(workers, marks)}")
        self.rule = rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Worker lists, and what they are said to be."""

    workers: tuple[tuple[Instruction, ...], ...]
    placement: Placement
    num_microbatches: int
    """Of the whole step."""
    in_flight_bounds: tuple[int, ...] | None
    """Per worker, the most stage activations held at once; ``None`` where nothing is said about that."""
    forward_only: bool
    ascending: bool = True
    """Whether gradients must be summed in microbatch order; else it is a notice where they are not."""

    def broken(self, rule: Rule, worker: int, position: int, text: str) -> BrokenRuleError:
        """Return the error for one cell."""
        return BrokenRuleError(rule, self.workers, {(worker, position): text})

    def end_of(self, worker: int) -> int:
        """Return the position past the last entry of a worker's list."""
        return len(self.workers[worker])
