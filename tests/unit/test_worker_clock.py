"""Offsets between clocks, against exchanges whose true offset and ways are known."""

import pytest

from stage_worker.clock import ClockOffset, clock_name


def exchange(clock: ClockOffset, *, offset: float, there: float, back: float, at: float, name: str = "other") -> None:
    """Send at ``at`` by the own clock to one that is ``offset`` ahead; the ways take ``there`` and ``back``."""
    received = at + there + offset
    answered = received + 0.25
    clock.add(sent=at, received=received, answered=answered, returned=answered - offset + back, name=name)


@pytest.mark.parametrize("offset", [0.0, 3_600.0, -1e6])
def test_offset_over_equal_ways_is_exact(offset: float) -> None:
    clock = ClockOffset("own")
    exchange(clock, offset=offset, there=0.01, back=0.01, at=5.0)
    assert clock.best is not None
    assert clock.best.offset_seconds == pytest.approx(offset, abs=1e-9)
    assert clock.best.error_seconds == pytest.approx(0.01, abs=1e-9)


@pytest.mark.parametrize(("there", "back"), [(0.0, 0.08), (0.08, 0.0), (0.03, 0.05)])
def test_offset_over_unequal_ways_is_within_the_error_that_is_told(there: float, back: float) -> None:
    clock = ClockOffset("own")
    exchange(clock, offset=7.0, there=there, back=back, at=1.0)
    assert clock.best is not None
    assert abs(clock.best.offset_seconds - 7.0) <= clock.best.error_seconds + 1e-9
    assert clock.best.error_seconds == pytest.approx(0.04)


def test_reading_with_the_shortest_way_counts() -> None:
    clock = ClockOffset("own")
    exchange(clock, offset=7.0, there=0.5, back=0.0, at=1.0)
    exchange(clock, offset=7.0, there=0.001, back=0.001, at=2.0)
    exchange(clock, offset=7.0, there=0.0, back=0.9, at=3.0)
    assert clock.best is not None
    assert clock.best.offset_seconds == pytest.approx(7.0)


def test_readings_of_long_ago_do_not_count_for_clocks_drift() -> None:
    clock = ClockOffset("own")
    exchange(clock, offset=7.0, there=0.001, back=0.001, at=1.0)
    for number in range(64):
        exchange(clock, offset=8.0, there=0.01, back=0.01, at=2.0 + number)
    assert clock.best is not None
    assert clock.best.offset_seconds == pytest.approx(8.0)


def test_one_clock_of_two_processes_needs_no_estimate() -> None:
    clock = ClockOffset("own")
    exchange(clock, offset=0.0, there=0.4, back=0.1, at=1.0, name="own")
    assert clock.best is not None
    assert (clock.best.offset_seconds, clock.best.error_seconds) == (0.0, 0.0)


def test_nothing_is_known_before_the_first_reading() -> None:
    assert ClockOffset("own").best is None


def test_name_of_the_clock_is_the_same_in_both_rooms() -> None:
    """The coordinator and a worker on one machine must find that they read one clock."""
    from coordinator.clock import clock_name as clock_name_of_coordinator  # noqa: PLC0415

    assert clock_name() == clock_name() == clock_name_of_coordinator()
