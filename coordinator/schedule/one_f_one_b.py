"""1F1B with a flush: one forward, one backward, in turn."""

from collections.abc import Sequence

from coordinator.schedule.actions import Action, Op, PlanError, ascending

EAGER = "eager"
"""The warmup that hides latency: twice the standard one."""

Warmup = str | Sequence[int]
"""``EAGER``, or how many forwards each stage runs before its first backward; stage 0 first."""


def order_1f1b(
    stage: int, *, num_stages: int, num_microbatches: int, warmup: Warmup | None = None
) -> tuple[Action, ...]:
    """Return the compute order of one stage: warmup, steady, cooldown.

    Warmup forwards, then forward-backward pairs, then the backwards that are left. The standard warmup
    is ``num_stages - 1 - stage``: as long as GPipe's, but with at most ``in_flight_1f1b`` microbatches in
    flight. Twice that (``EAGER``) takes as long, and hides a latency of up to half a forward and backward.
    Source: Narayanan et al. 2021 (arXiv 2104.04473), there called PipeDream-Flush.

    Raises:
        PlanError: ``stage`` is outside ``[0, num_stages)``, or there is no microbatch.
    """
    forwards = ascending(Op.FORWARD, stage, num_microbatches=num_microbatches)
    backwards = ascending(Op.BACKWARD, stage, num_microbatches=num_microbatches)
    depth = min(_depth(stage, num_stages, warmup), num_microbatches)
    pairs = zip(forwards[depth:], backwards, strict=False)  # unequal on purpose: cooldown has the rest
    steady = [action for pair in pairs for action in pair]
    return (*forwards[:depth], *steady, *backwards[num_microbatches - depth :])


def in_flight_1f1b(stage: int, *, num_stages: int, num_microbatches: int, warmup: Warmup | None = None) -> int:
    """Return how many microbatches one stage holds at most."""
    return min(_depth(stage, num_stages, warmup) + 1, num_microbatches)


def _depth(stage: int, num_stages: int, warmup: Warmup | None) -> int:
    """Return the warmup of one stage, where there are microbatches enough."""
    if not 0 <= stage < num_stages:
        raise PlanError(f"stage {stage} is outside [0, {num_stages})")
    if warmup is None:
        return num_stages - 1 - stage
    if isinstance(warmup, str):
        return 2 * (num_stages - 1 - stage)
    return warmup[stage]
