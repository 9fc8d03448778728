"""1F1B with a flush: one forward, one backward, in turn."""

from coordinator.schedule.actions import Action, Op, PlanError, ascending


def order_1f1b(stage: int, *, num_stages: int, num_microbatches: int) -> tuple[Action, ...]:
    """Return the compute order of one stage: warmup, steady, cooldown.

    Warmup forwards, then forward-backward pairs, then the backwards that are left. As long as
    GPipe's, but with at most ``in_flight_1f1b`` microbatches in flight.
    Source: Narayanan et al. 2021 (arXiv 2104.04473), there called PipeDream-Flush.

    Raises:
        PlanError: ``stage`` is outside ``[0, num_stages)``, or there is no microbatch.
    """
    if not 0 <= stage < num_stages:
        raise PlanError(f"stage {stage} is outside [0, {num_stages})")
    forwards = ascending(Op.FORWARD, stage, num_microbatches=num_microbatches)
    backwards = ascending(Op.BACKWARD, stage, num_microbatches=num_microbatches)
    warmup = min(num_stages - 1 - stage, num_microbatches)
    pairs = zip(forwards[warmup:], backwards, strict=False)  # unequal on purpose: cooldown has the rest
    steady = [action for pair in pairs for action in pair]
    return (*forwards[:warmup], *steady, *backwards[num_microbatches - warmup :])


def in_flight_1f1b(stage: int, *, num_stages: int, num_microbatches: int) -> int:
    """Return how many microbatches one stage holds at most."""
    return min(num_stages - stage, num_microbatches)
