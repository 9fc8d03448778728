"""Costs read off a trace whose every span is written by hand, and the step that they let expect."""

from collections.abc import Iterator

import pytest

from coordinator.schedule.plan import make_plan
from coordinator.trace.beside import planned_beside
from coordinator.trace.expected import expected_timeline
from coordinator.trace.measured import WARMING_STEPS, NoTimesError, measured_costs
from coordinator.trace.timeline import Span, Trace, Track, WorkerTrace

FORWARD, BACKWARD, WAY, GAP, UPDATE, VOTE = (2.0, 3.0), (4.0, 5.0), 0.5, 0.25, 1.0, 0.125


class Clock:
    """Lays spans one after the other."""

    def __init__(self, step: int, at: float) -> None:
        self.step = step
        self.now = at
        self.spans: list[Span] = []

    def span(self, name: str, seconds: float, stage: int | None = None, microbatch: int | None = None) -> None:
        end = self.now + seconds
        self.spans.append(
            Span(
                track=Track.COMPUTE,
                name=name,
                start=self.now,
                end=end,
                step=self.step,
                stage=stage,
                microbatch=microbatch,
            )
        )
        self.now = end

    def transfer(self, track: Track, name: str, start: float, end: float, stage: int, microbatch: int) -> None:
        self.spans.append(
            Span(
                track=track, name=name, start=start, end=end, step=self.step, stage=stage, microbatch=microbatch, peer=9
            )
        )


def gpipe_step(step: int, at: float, *, late: float = 0.0) -> Iterator[list[Span]]:
    """Yield what both workers do in a step of GPipe with 2 microbatches; ``late`` prolongs each forward of stage 0."""
    first, last = Clock(step, at), Clock(step, at)
    sent = []
    for microbatch in (0, 1):
        first.span("F", FORWARD[0] + late, 0, microbatch)
        sent.append(first.now)
        first.transfer(Track.SEND, "activation", first.now, first.now + WAY, 0, microbatch)
        first.now += GAP
    for microbatch in (0, 1):
        arrival = max(sent[microbatch] + WAY, last.now)
        if arrival > last.now:
            last.span("activation", arrival - last.now, 1, microbatch)
        last.transfer(Track.RECEIVE, "activation", at, last.now, 0, microbatch)
        last.span("F", FORWARD[1], 1, microbatch)
        last.now += GAP
    sent = []
    for microbatch in (0, 1):
        last.span("B", BACKWARD[1], 1, microbatch)
        sent.append(last.now)
        last.transfer(Track.SEND, "gradient", last.now, last.now + WAY, 1, microbatch)
        last.now += GAP
    for microbatch in (0, 1):
        arrival = max(sent[microbatch] + WAY, first.now)
        if arrival > first.now:
            first.span("gradient", arrival - first.now, 0, microbatch)
        first.transfer(Track.RECEIVE, "gradient", at, first.now, 1, microbatch)
        first.span("B", BACKWARD[0], 0, microbatch)
        first.now += GAP
    verdict = max(first.now, last.now) + VOTE
    for clock in (first, last):
        clock.span("reduce", verdict - clock.now)
        clock.span("step", UPDATE)
    yield from (first.spans, last.spans)


def trace_of(num_steps: int, *, warming: float = 0.0) -> Trace:
    spans: list[list[Span]] = [[], []]
    for step in range(1, num_steps + 1):
        late = warming if step <= WARMING_STEPS else 0.0
        for worker, own in enumerate(gpipe_step(step, 100.0 * step, late=late)):
            spans[worker] += own
    return Trace(
        job="j",
        schedule="gpipe",
        origin=0.0,
        clock_error_seconds=0.0,
        workers=tuple(
            WorkerTrace(worker=worker, dp_rank=0, stages=(worker,), spans=tuple(own), samples=())
            for worker, own in enumerate(spans)
        ),
    )


def test_costs_are_those_that_were_laid_down_and_the_first_steps_do_not_count() -> None:
    costs = measured_costs(trace_of(WARMING_STEPS + 4, warming=50.0))
    taken = {action: time.seconds for action, time in costs.actions.items()}
    assert taken == pytest.approx({(0, "F"): 2.0, (1, "F"): 3.0, (0, "B"): 4.0, (1, "B"): 5.0})
    assert costs.transfer == pytest.approx(WAY)
    assert costs.optimizer == pytest.approx({0: UPDATE, 1: UPDATE})
    assert costs.vote == pytest.approx(VOTE)
    assert costs.waits == 0.0
    assert costs.action_seconds == pytest.approx(GAP)


def test_a_slow_step_is_no_reason_to_expect_others() -> None:
    trace = trace_of(WARMING_STEPS + 5)
    slow = [[list(own) for own in gpipe_step(99, 10_000.0, late=30.0)][worker] for worker in (0, 1)]
    workers = tuple(
        WorkerTrace(worker=w.worker, dp_rank=0, stages=w.stages, spans=(*w.spans, *own), samples=())
        for w, own in zip(trace.workers, slow, strict=True)
    )
    costs = measured_costs(Trace(job="j", schedule="gpipe", origin=0.0, clock_error_seconds=0.0, workers=workers))
    assert costs.actions[0, "F"].seconds == pytest.approx(2.0)


def test_one_slow_microbatch_of_each_step_counts_with_its_share() -> None:
    """The step is as much longer, so a median over microbatches would promise too short a one."""
    trace = trace_of(5)
    spans = [
        Span(track=s.track, name=s.name, start=s.start, end=s.end + 6.0, step=s.step, stage=0, microbatch=1)
        if (s.name, s.stage, s.microbatch) == ("B", 0, 1) and s.track is Track.COMPUTE
        else s
        for s in trace.workers[0].spans
    ]
    worker = WorkerTrace(worker=0, dp_rank=0, stages=(0,), spans=tuple(spans), samples=())
    costs = measured_costs(
        Trace(job="j", schedule="gpipe", origin=0.0, clock_error_seconds=0.0, workers=(worker, trace.workers[1]))
    )
    assert costs.actions[0, "B"].seconds == pytest.approx(4.0 + 6.0 / 2)


def test_expected_step_is_the_measured_one() -> None:
    trace = trace_of(WARMING_STEPS + 2)
    plan = make_plan("gpipe", num_workers=2, num_microbatches=2)
    timeline = expected_timeline(plan, measured_costs(trace))
    # Stage 1 waits for the first activation, then is never idle: 2 + gap + way + 2 x (3 + gap) + 2 x (5 + gap),
    # then the last gradient goes back, stage 0 does its last backward, and both vote and update.
    own = UPDATE + 2.0 + WAY + 2 * (3.0 + GAP) + 2 * (5.0 + GAP) + WAY + 4.0 + GAP + VOTE
    # A gap stands before each action here and behind it there: two messages leave a gap later.
    assert timeline.makespan == pytest.approx(own + GAP, abs=2 * GAP)
    measured = max(w.spans[-1].end for w in trace.workers) - 100.0 * (WARMING_STEPS + 2)
    assert timeline.makespan == pytest.approx(measured, rel=0.02)


def test_plan_beside_a_trace_begins_each_step_where_the_measured_one_does() -> None:
    trace = trace_of(4)
    planned = planned_beside(trace, make_plan("gpipe", num_workers=2, num_microbatches=2))
    for step in range(1, 5):
        first = [s.start for s in planned.workers[0].spans if (s.step, s.name, s.microbatch) == (step, "F", 0)]
        assert first == [pytest.approx(100.0 * step)]


def test_actions_that_were_not_traced_are_named() -> None:
    with pytest.raises(NoTimesError, match="I of stage 1 was not traced"):
        expected_timeline(make_plan("zbh1", num_workers=2, num_microbatches=2), measured_costs(trace_of(5)))


def test_a_trace_without_a_whole_step_tells_so() -> None:
    trace = trace_of(1)
    empty = WorkerTrace(worker=1, dp_rank=0, stages=(1,), spans=(), samples=())
    with pytest.raises(NoTimesError, match="no training step was traced on every worker"):
        measured_costs(
            Trace(job="j", schedule="gpipe", origin=0.0, clock_error_seconds=0.0, workers=(trace.workers[0], empty))
        )
