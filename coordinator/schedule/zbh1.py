"""ZB-H1: 1F1B whose weight gradients wait, so that the next stage gets its gradient sooner."""

from coordinator.schedule.actions import Action, Op, ascending


def order_zbh1(stage: int, *, num_stages: int, num_microbatches: int) -> tuple[Action, ...]:
    """Return the compute order of one stage: 1F1B's, with every ``W`` ``stage`` microbatches behind its ``I``.

    Later stages start their backwards earlier and delay more, so each holds ``num_stages`` microbatches,
    as stage 0 of 1F1B does. With ``F = I = W`` and microbatches enough the bubble is a third of 1F1B's.
    With few microbatches no ``W`` stands between the ``I``: they all wait for the end.
    Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism (arXiv 2401.10241), section 2.1.

    Raises:
        PlanError: There is no microbatch.
    """
    return order_delayed(stage, warmup=num_stages - 1 - stage, delay=stage, num_microbatches=num_microbatches)


def in_flight_zbh1(*, num_stages: int, num_microbatches: int) -> int:
    """Return how many microbatches any stage holds at most."""
    return min(num_stages, num_microbatches)


def order_delayed(stage: int, *, warmup: int, delay: int, num_microbatches: int) -> tuple[Action, ...]:
    """Return 1F1B with backwards in halves: the ``W`` of microbatch ``m - delay`` stands behind the ``I`` of ``m``.

    Raises:
        PlanError: There is no microbatch.
    """
    forwards = ascending(Op.FORWARD, stage, num_microbatches=num_microbatches)
    inputs = ascending(Op.INPUT_GRADIENT, stage, num_microbatches=num_microbatches)
    weights = ascending(Op.WEIGHT_GRADIENT, stage, num_microbatches=num_microbatches)
    order = [*forwards[:warmup]]
    for microbatch, gradient in enumerate(inputs):
        order += [*forwards[warmup + microbatch : warmup + microbatch + 1], gradient]
        if microbatch >= delay:
            order.append(weights[microbatch - delay])
    return (*order, *weights[max(0, num_microbatches - delay) :])
