"""What a plan makes of the costs that were measured while it ran. Pure."""

from coordinator.schedule.actions import Op
from coordinator.schedule.plan import Plan
from coordinator.schedule.simulate import Timeline, simulate
from coordinator.schedule.stage_costs import StageCosts
from coordinator.trace.measured import MeasuredCosts, NoTimesError

_UNUSED_SECONDS = 1e-9
"""Stands for an op that the plan does not have."""


def expected_timeline(plan: Plan, measured: MeasuredCosts) -> Timeline:
    """Return a step of ``plan`` in seconds, from verdict to verdict, as it were if every action took its median.

    Raises:
        NoTimesError: An action of the plan was not measured.
    """
    used = {(action.stage, action.op) for order in plan.orders for action in order}

    def seconds(op: Op) -> tuple[float, ...]:
        return tuple(_of(stage, op) for stage in range(plan.placement.num_stages))

    def _of(stage: int, op: Op) -> float:
        if (stage, op) not in used:
            return _UNUSED_SECONDS
        taken = measured.actions.get((stage, str(op)))
        if taken is None:
            raise NoTimesError(f"{op} of stage {stage} was not traced, but the plan has it")
        return taken.seconds + measured.action_seconds

    workers = range(plan.placement.num_workers)
    costs = StageCosts(
        forward=seconds(Op.FORWARD),
        backward=seconds(Op.BACKWARD),
        input_gradient=seconds(Op.INPUT_GRADIENT),
        weight_gradient=seconds(Op.WEIGHT_GRADIENT),
        transfer=(measured.transfer,) * (plan.placement.num_stages - 1),
        reduce=(0.0,) * len(workers),  # what the last worker spends on it is part of the vote
        optimizer=tuple(measured.optimizer[worker] for worker in workers),
        step_end=measured.vote + measured.waits,
    )
    return simulate(plan, costs)
