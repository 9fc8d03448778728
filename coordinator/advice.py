"""Which single changes of a job would make its steps shorter, by prediction. Pure."""

from dataclasses import dataclass

from coordinator.choice import Comparison, Ranked

LEAST_GAIN = 0.01
"""Part of a step that a change has to bring; less is within what predictions are off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing to change, all else left as it is."""

    what: str
    """schedule (with its chunks), microbatches or partition."""
    to: Ranked
    gain: float
    """Part of the job's own predicted step that it saves."""


def changes(comparison: Comparison) -> tuple[Change, ...]:
    """Return the best change of each kind that brings something, the one that brings most first.

    Raises:
        ValueError: The job's own layout is not among those compared.
    """
    own = comparison.own
    if own is None:
        raise ValueError("the job's own layout is not among those compared")
    best: dict[str, Change] = {}
    for each in comparison.ranked:
        kind = _difference(own, each)
        gain = 1 - each.step / own.step
        if kind is None or gain < LEAST_GAIN or each.fits is False:
            continue
        if kind not in best or gain > best[kind].gain:
            best[kind] = Change(what=kind, to=each, gain=gain)
    return tuple(sorted(best.values(), key=lambda change: -change.gain))


def _difference(own: Ranked, other: Ranked) -> str | None:
    """Return the one thing in which two layouts differ; None where it is nothing or more."""
    same, that = own.candidate, other.candidate
    kinds = []
    if (that.schedule, that.num_chunks) != (same.schedule, same.num_chunks):
        kinds.append("schedule")
    if that.num_microbatches != same.num_microbatches:
        kinds.append("microbatches")
    if that.partition != same.partition:
        kinds.append("partition")
    return kinds[0] if len(kinds) == 1 else None
