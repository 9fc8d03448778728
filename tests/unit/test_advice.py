"""Which single changes are told."""

import pytest

from coordinator.advice import changes
from coordinator.candidates import Candidate
from coordinator.choice import Comparison, Ranked
from coordinator.pricing import Basis


def ranked(step: float, *, is_own: bool = False, fits: bool | None = None, **values: object) -> Ranked:
    candidate = Candidate(**{"schedule": "1f1b", "num_chunks": 1, "num_microbatches": 8, **values})  # type: ignore[arg-type]
    return Ranked(
        candidate=candidate,
        step=step,
        bubble_fraction=0.1,
        peak_in_flight=2,
        memory_bytes=None,
        fits=fits,
        num_commands=10,
        is_own=is_own,
    )


def told(*others: Ranked) -> list[tuple[str, float]]:
    found = changes(Comparison(ranked=(ranked(10.0, is_own=True), *others), left_out=(), basis=Basis.PROFILE))
    return [(change.what, pytest.approx(change.gain)) for change in found]


def test_best_change_of_each_kind_is_told_and_the_one_that_brings_most_first() -> None:
    assert told(
        ranked(9.0, schedule="zbh1"),
        ranked(8.0, schedule="zbv", num_chunks=2),
        ranked(7.0, num_microbatches=16),
        ranked(9.5, num_microbatches=4),
        ranked(8.5, partition="balanced"),
    ) == [("microbatches", 0.3), ("schedule", 0.2), ("partition", 0.15)]


def test_two_changes_at_once_are_no_single_change() -> None:
    assert (
        told(ranked(1.0, schedule="zbh1", num_microbatches=16), ranked(1.0, schedule="zbv", partition="balanced")) == []
    )


def test_what_brings_next_to_nothing_or_costs_is_not_told() -> None:
    assert told(ranked(9.95, schedule="zbh1"), ranked(12.0, num_microbatches=4)) == []


def test_what_does_not_fit_the_devices_is_not_told() -> None:
    assert told(ranked(7.0, schedule="gpipe", fits=False), ranked(9.0, schedule="zbh1")) == [("schedule", 0.1)]


def test_own_layout_has_to_be_among_them() -> None:
    with pytest.raises(ValueError, match="own layout"):
        changes(Comparison(ranked=(ranked(9.0, schedule="zbh1"),), left_out=(), basis=Basis.PROFILE))
