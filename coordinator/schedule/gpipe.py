"""GPipe: all forwards, then all backwards."""

from coordinator.schedule.actions import Action, Op, ascending


def order_gpipe(stage: int, *, num_microbatches: int) -> tuple[Action, ...]:
    """Return the compute order of one stage: every forward, then every backward.

    All microbatches are in flight at once. Backwards ascend too, because the sum of the gradients
    takes its bits from that order; the time is the same either way.
    Source: Huang et al. 2019 (arXiv 1811.06965).

    Raises:
        PlanError: There is no microbatch.
    """
    return (
        *ascending(Op.FORWARD, stage, num_microbatches=num_microbatches),
        *ascending(Op.BACKWARD, stage, num_microbatches=num_microbatches),
    )
