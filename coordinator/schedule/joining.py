"""Joins the two halves of a backward where nothing is gained by keeping them apart."""

from collections.abc import Sequence

from coordinator.schedule.actions import Action, Op
from coordinator.schedule.placement import Placement


def join(order: Sequence[Action], placement: Placement) -> tuple[Action, ...]:
    """Return one worker's compute ``order`` with ``I`` and ``W`` of one microbatch, side by side, as one ``B``.

    Joined is where the input's gradient stays on its worker: on stage 0, and where the stage below is on
    the same worker. Elsewhere the gradient leaves behind ``I``, one ``W`` sooner, and the halves stay apart.
    """
    joined: list[Action] = []
    for action in order:
        stage, op, microbatch = action.stage, action.op, action.microbatch
        if (
            op is Op.WEIGHT_GRADIENT
            and joined
            and joined[-1] == Action(stage, Op.INPUT_GRADIENT, microbatch)
            and (stage == 0 or placement.worker_of(stage - 1) == placement.worker_of(stage))
        ):
            joined[-1] = Action(stage, Op.BACKWARD, microbatch)
        else:
            joined.append(action)
    return tuple(joined)
