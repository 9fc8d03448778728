"""Whether the workers of a step tell the same of what each of them computes for itself. Pure."""

from collections.abc import Sequence

from coordinator.events import StepResult

_REPLICATED = ("skipped", "loss_scale", "learning_rate")
"""What every worker computes from the same state by the same rule; where it differs, so do the weights."""


def disagreement(results: Sequence[StepResult]) -> tuple[str, dict[object, frozenset[int]]] | None:
    """Return the first figure that is not the same in all results, and who told which value; None where all agree."""
    for name in _REPLICATED:
        told: dict[object, frozenset[int]] = {}
        for result in sorted(results, key=lambda result: result.worker):
            value = getattr(result, name)
            told[value] = told.get(value, frozenset()) | {result.worker}
        if len(told) > 1:
            return name, told
    return None
