"""ZB-H2: ZB-H1 with more forwards ahead, so that no stage waits between its first and its last action."""

from coordinator.schedule.actions import Action
from coordinator.schedule.zbh1 import order_delayed


def order_zbh2(stage: int, *, num_stages: int, num_microbatches: int) -> tuple[Action, ...]:
    """Return the compute order of one stage: twice the warmup of 1F1B, each ``W`` ``2 * stage`` behind its ``I``.

    With ``F = I = W`` and ``2 * num_stages - 1`` microbatches or more, no stage waits once it has begun. That
    pays where the next step starts without waiting for all stages; a step that ends in one barrier takes as
    long as under ZB-H1, because stage s still begins s forwards late and ends as much later. With fewer
    microbatches it can be slower than ZB-H1 (8 stages and 8 microbatches: 34 against 31 forwards).
    Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism (arXiv 2401.10241), section 2.2.

    Raises:
        PlanError: There is no microbatch.
    """
    warmup = 2 * (num_stages - 1 - stage)
    return order_delayed(stage, warmup=warmup, delay=2 * stage, num_microbatches=num_microbatches)


def in_flight_zbh2(*, num_stages: int, num_microbatches: int) -> int:
    """Return how many microbatches any stage holds at most."""
    return min(2 * num_stages - 1, num_microbatches)
