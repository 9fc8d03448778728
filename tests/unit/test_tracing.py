"""When the timeline of a run is written, on a clock that the test moves."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from coordinator import tracing
from coordinator.files import JobFiles
from coordinator.trace.chrome_reader import from_chrome
from coordinator.trace.collected import Collected, StepTimes
from coordinator.trace.timeline import Span, Track
from coordinator.tracing import Tracing


class Clock:
    """Stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(tracing, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: 5e9))


class Files:
    """Counts what is written; each write takes some seconds of the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = 0.0
        self.written: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.error: OSError | None = None

    def write_trace(self, pieces: Iterable[str]) -> None:
        assert self.may_go_on.wait(10)
        if self.error is not None:
            raise self.error
        self._clock.now += self.seconds
        self.written.append("".join(pieces))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def traced(files: object) -> Tracing:
    return Tracing(Collected({0: (0, (0,))}), job="j", schedule="1f1b", files=files)  # type: ignore[arg-type]


def step(number: int) -> StepTimes:
    span = Span(track=Track.COMPUTE, name="F", start=1.0, end=2.0, step=number, stage=0, microbatch=0)
    return StepTimes(step=number, spans=(span,), end=2.0, in_flight=1, memory_bytes=8, clock=None)


async def write_if_due(one: Tracing) -> None:
    """Give the write that may have begun the time that it needs."""
    one.write_if_due()
    await asyncio.sleep(0.05)


async def test_timeline_is_written_every_half_minute_and_at_the_end(clock: Clock) -> None:
    files = Files(clock)
    one = traced(files)
    counts = []
    for number, now in enumerate((1000.0, 1029.9, 1030.0, 1031.0, 1059.9, 1060.0), start=1):
        one.add(0, step(number))
        clock.now = now
        await write_if_due(one)
        counts.append(len(files.written))
    assert counts == [0, 0, 1, 1, 1, 2]
    one.add(0, step(7))
    await one.finish()
    (worker,) = from_chrome(files.written[-1]).workers
    assert [span.step for span in worker.spans] == [1, 2, 3, 4, 5, 6, 7]


async def test_timeline_that_takes_long_to_write_is_written_more_seldom(clock: Clock) -> None:
    """At most a hundredth of the time goes into it: 2 s every 200."""
    files = Files(clock)
    files.seconds = 2.0
    one = traced(files)
    one.add(0, step(1))
    counts = []
    for now in (1030.0, 1231.9, 1232.0):
        clock.now = now
        await write_if_due(one)
        counts.append(len(files.written))
    assert counts == [1, 1, 2]


async def test_timeline_is_not_written_twice_at_once(clock: Clock) -> None:
    files = Files(clock)
    files.may_go_on.clear()
    one = traced(files)
    one.add(0, step(1))
    for now in (1030.0, 1100.0, 1200.0):
        clock.now = now
        await write_if_due(one)
    files.may_go_on.set()
    await one.finish()
    assert len(files.written) == 2  # the one that was held up, and the last one


async def test_run_goes_on_where_its_timeline_cannot_be_written(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    files = Files(clock)
    files.error = OSError(28, "No space left on device")
    one = traced(files)
    one.add(0, step(1))
    clock.now = 1030.0
    await write_if_due(one)
    await one.finish()
    assert capsys.readouterr().out.count("No space left on device") == 2
    files.error = None
    await one.finish()
    assert len(files.written) == 1


async def test_run_without_a_step_leaves_no_timeline(clock: Clock, tmp_path: Path) -> None:
    files = JobFiles.of(tmp_path, "j")
    one = traced(files)
    clock.now = 1030.0
    await write_if_due(one)
    await one.finish()
    assert not files.trace.exists()
