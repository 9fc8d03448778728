"""What a step costs where stages differ."""

import math
from dataclasses import dataclass

from coordinator.schedule.actions import Op, PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """What one microbatch costs on each stage, and what ends a step on each worker, in one unit of time.

    A step ends with the reduce of each worker, then the vote, for which every worker waits for the last one, then
    the optimizer of each worker, which the next step's work follows at once.

    Raises:
        PlanError: A list has a wrong length or holds what is no finite number; a compute cost is not above 0, or
            another one below 0.
    """

    forward: tuple[float, ...]
    """By stage, stage 0 first."""
    backward: tuple[float, ...]
    """A whole backward."""
    input_gradient: tuple[float, ...]
    weight_gradient: tuple[float, ...]
    transfer: tuple[float, ...]
    """From stage s to s+1 or back, where they are on two workers; one less than there are stages."""
    reduce: tuple[float, ...]
    """By worker: adding up its gradients over replicas."""
    optimizer: tuple[float, ...]
    """By worker: updating its parameters."""
    step_end: float = 0.0
    """From the last worker's reduce to the verdict."""
    first_backward: float = 0.0
    """What the first backward of stage 0, or the first half of one, takes longer than the others."""

    def __post_init__(self) -> None:
        stages, workers = len(self.forward), len(self.reduce)
        for name, costs, count, least in (
            ("forward", self.forward, stages, "above"),
            ("backward", self.backward, stages, "above"),
            ("input_gradient", self.input_gradient, stages, "above"),
            ("weight_gradient", self.weight_gradient, stages, "above"),
            ("transfer", self.transfer, stages - 1, "at least"),
            ("reduce", self.reduce, workers, "at least"),
            ("optimizer", self.optimizer, workers, "at least"),
            ("step_end", (self.step_end,), 1, "at least"),
            ("first_backward", (self.first_backward,), 1, "at least"),
        ):
            if len(costs) != count:
                raise PlanError(f"costs {name} has {len(costs)} entries, need {count}")
            for index, cost in enumerate(costs):
                if not math.isfinite(cost) or cost < 0 or (cost == 0 and least == "above"):
                    raise PlanError(f"cost {name} {index} is {cost}, need a finite number {least} 0")

    def of(self, stage: int, op: Op) -> float:
        """Return what the compute op ``op`` takes on ``stage``."""
        match op:
            case Op.FORWARD:
                return self.forward[stage]
            case Op.BACKWARD:
                return self.backward[stage]
            case Op.INPUT_GRADIENT:
                return self.input_gradient[stage]
            case Op.WEIGHT_GRADIENT:
                return self.weight_gradient[stage]
        raise PlanError(f"{op} computes nothing")
