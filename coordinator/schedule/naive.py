"""Naive model parallelism: one microbatch at a time."""

from coordinator.schedule.actions import Action, Op, ascending


def order_naive(stage: int, *, num_microbatches: int) -> tuple[Action, ...]:
    """Return the compute order of one stage: forward and backward of each microbatch alone.

    Only one stage computes at any time, so the bubble is ``(num_stages - 1) / num_stages``.

    Raises:
        PlanError: There is no microbatch.
    """
    forwards = ascending(Op.FORWARD, stage, num_microbatches=num_microbatches)
    backwards = ascending(Op.BACKWARD, stage, num_microbatches=num_microbatches)
    return tuple(action for pair in zip(forwards, backwards, strict=True) for action in pair)
