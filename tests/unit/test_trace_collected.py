"""What is kept of workers' timelines, and how their clocks are brought together."""

import pytest

from coordinator.trace.alignment import ClockReading
from coordinator.trace.collected import FIRST_STEPS, LAST_STEPS, Collected, StepTimes
from coordinator.trace.timeline import Span, Track

WORKERS = {0: (0, (0,)), 1: (0, (1,))}


def times(step: int, *, at: float = 0.0, clock: ClockReading | None = None) -> StepTimes:
    span = Span(track=Track.COMPUTE, name="F", start=at, end=at + 0.5, step=step, stage=0, microbatch=0)
    return StepTimes(step=step, spans=(span,), end=at + 0.5, in_flight=2, memory_bytes=100, clock=clock)


def reading(name: str, offset: float, error: float) -> ClockReading:
    return ClockReading(name=name, offset_seconds=offset, error_seconds=error)


def starts(collected: Collected, zero: float = 0.0) -> list[list[float]]:
    trace = collected.trace(job="j", schedule="1f1b", origin=1e9, zero=zero)
    assert trace is not None
    return [[span.start for span in worker.spans] for worker in trace.workers]


def test_first_and_last_steps_are_kept_and_those_between_are_not() -> None:
    collected = Collected(WORKERS)
    for step in range(1, 101):
        for worker in WORKERS:
            collected.add(worker, times(step))
    trace = collected.trace(job="j", schedule="1f1b", origin=1e9, zero=0.0)
    assert trace is not None
    kept = [*range(1, FIRST_STEPS + 1), *range(101 - LAST_STEPS, 101)]
    assert [[span.step for span in worker.spans] for worker in trace.workers] == [kept, kept]


def test_no_step_is_no_trace() -> None:
    assert Collected(WORKERS).trace(job="j", schedule="1f1b", origin=0.0, zero=0.0) is None


def test_clocks_of_two_machines_are_brought_to_the_coordinators() -> None:
    """Worker 0's clock reads 100 when the coordinator's reads 40, worker 1's 7."""
    collected = Collected(WORKERS)
    collected.add(0, times(1, at=100.0, clock=reading("a", -60.0, 0.001)))
    collected.add(1, times(1, at=7.0, clock=reading("b", 33.0, 0.002)))
    assert starts(collected) == [[40.0], [40.0]]
    assert starts(collected, zero=30.0) == [[10.0], [10.0]]
    trace = collected.trace(job="j", schedule="1f1b", origin=1e9, zero=30.0)
    assert trace is not None
    assert trace.clock_error_seconds == pytest.approx(0.003)
    assert trace.origin == 1e9
    assert [sample.time for sample in trace.workers[0].samples] == [10.5]


def test_workers_that_read_one_clock_take_the_better_of_their_readings() -> None:
    """Else what is before and after on one machine would change places by the error of two readings."""
    collected = Collected(WORKERS)
    collected.add(0, times(1, at=5.0, clock=reading("a", 2.0, 0.5)))
    collected.add(1, times(1, at=5.001, clock=reading("a", 1.6, 0.1)))
    assert starts(collected) == [[pytest.approx(6.6)], [pytest.approx(6.601)]]
    trace = collected.trace(job="j", schedule="1f1b", origin=0.0, zero=0.0)
    assert trace is not None
    assert trace.clock_error_seconds == 0.0


def test_the_latest_reading_of_a_worker_counts() -> None:
    collected = Collected(WORKERS)
    collected.add(0, times(1, at=1.0, clock=None))
    collected.add(0, times(2, at=2.0, clock=reading("a", 10.0, 0.1)))
    collected.add(0, times(3, at=3.0, clock=None))
    assert starts(collected)[0] == [11.0, 12.0, 13.0]


def message(
    track: Track, start: float, end: float, *, microbatch: int = 0, stage: int = 0, clock: ClockReading | None = None
) -> StepTimes:
    name = "activation" if stage == 0 else "gradient"
    span = Span(track=track, name=name, start=start, end=end, step=1, stage=stage, microbatch=microbatch, peer=9)
    return StepTimes(step=1, spans=(span,), end=end, in_flight=0, memory_bytes=0, clock=clock)


@pytest.mark.parametrize(
    ("seen", "taken", "end"),
    [(5.0, 4.0, 4.0), (3.0, 4.0, 3.0)],  # seen late; taken late
)
def test_message_has_left_when_it_is_taken_however_late_that_was_seen(seen: float, taken: float, end: float) -> None:
    collected = Collected(WORKERS)
    collected.add(0, message(Track.SEND, 1.0, seen))
    collected.add(1, message(Track.RECEIVE, 0.0, taken))
    trace = collected.trace(job="j", schedule="1f1b", origin=0.0, zero=0.0)
    assert trace is not None
    assert [(span.start, span.end) for span in trace.workers[0].spans] == [(1.0, end)]
    assert [(span.start, span.end) for span in trace.workers[1].spans] == [(0.0, taken)]


@pytest.mark.parametrize("other", [{"microbatch": 1}, {"stage": 1}])
def test_another_message_says_nothing_of_when_one_has_left(other: dict[str, int]) -> None:
    collected = Collected(WORKERS)
    collected.add(0, message(Track.SEND, 1.0, 5.0))
    collected.add(1, message(Track.RECEIVE, 0.0, 2.0, **other))
    trace = collected.trace(job="j", schedule="1f1b", origin=0.0, zero=0.0)
    assert trace is not None
    assert trace.workers[0].spans[0].end == 5.0


@pytest.mark.parametrize(
    ("errors", "moved"), [((0.25, 0.75), (-0.25, 0.75)), ((0.0, 0.5), (0.0, 1.0)), ((0, 0), (-0.5, 0.5))]
)
def test_no_message_is_taken_before_it_was_posted(errors: tuple[float, float], moved: tuple[float, float]) -> None:
    """Readings put the taking one second before the posting; the less certain clock gives way further."""
    collected = Collected(WORKERS)
    collected.add(0, message(Track.SEND, 10.0, 10.1, clock=reading("a", 0.0, errors[0])))
    collected.add(1, message(Track.RECEIVE, 58.0, 59.0, clock=reading("b", -50.0, errors[1])))
    posted, taken = starts(collected)
    assert posted == [pytest.approx(10.0 + moved[0])]
    assert taken == [pytest.approx(8.0 + moved[1])]


def test_messages_both_ways_leave_the_clocks_between_them() -> None:
    """Truly 50 apart; ways of 0.01, but the readings are off by 0.3."""
    collected = Collected(WORKERS)
    for microbatch in range(4):
        there, back = 10.0 + microbatch, 10.5 + microbatch
        own = reading("a", 0.0, 0.001)
        other = reading("b", -50.3, 0.4)
        collected.add(0, message(Track.SEND, there, there + 0.01, microbatch=microbatch, clock=own))
        collected.add(1, message(Track.RECEIVE, 50 + there, 50 + there + 0.01, microbatch=microbatch, clock=other))
        collected.add(1, message(Track.SEND, 50 + back, 50 + back + 0.01, microbatch=microbatch, stage=1, clock=other))
        collected.add(0, message(Track.RECEIVE, back, back + 0.01, microbatch=microbatch, stage=1, clock=own))
    first, last = starts(collected)
    assert last[0] - first[0] == pytest.approx(0.0, abs=0.011)
    assert last[1] - first[1] == pytest.approx(0.0, abs=0.011)
