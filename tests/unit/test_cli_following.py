"""Logs that are followed while the coordinator comes and goes: what is asked of it each time, and what is given up."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import grpc
import pytest
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.client import CallError, JobClient
from coordinator.cli.following import follow_logs
from coordinator.cli.outcome import ABSENCE_SECONDS

AWAY = CallError(grpc.StatusCode.UNAVAILABLE, "away")
LATE = CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "late")
GONE = CallError(grpc.StatusCode.NOT_FOUND, "gone")


def line(worker: int, end: int) -> pb.ReadLogsResponse:
    return pb.ReadLogsResponse(worker=worker, line=f"{worker} to {end}", end=end)


class Script:
    """A client whose streams of lines, and answers about the job, are given; an error ends what it stands in."""

    def __init__(self, streams: list[list[pb.ReadLogsResponse | CallError]], answers: list[CallError | None]) -> None:
        self.streams = streams
        self.answers = answers
        self.asked: list[dict[str, Any]] = []
        self.time = 0.0

    def logs(self, job_id: str, **asked: Any) -> Iterator[pb.ReadLogsResponse]:
        positions: Mapping[int, int] = asked.pop("positions", {})
        self.asked.append({**asked, "positions": dict(positions)})
        for item in self.streams.pop(0):
            if isinstance(item, CallError):
                raise item
            yield item

    def job(self, job_id: str) -> pb.Job:
        answer = self.answers.pop(0) if self.answers else AWAY
        if answer is not None:
            raise answer
        return pb.Job(id=job_id)

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def follow(self, *, tail: int | None = None) -> Iterator[pb.ReadLogsResponse]:
        return follow_logs(cast(JobClient, self), "j", stage=None, tail=tail, pause=self.pause, now=lambda: self.time)


@pytest.mark.parametrize("error", [AWAY, LATE])
def test_follow_goes_on_behind_the_last_line_of_each_worker(error: CallError) -> None:
    lines = [line(0, 5), line(1, 3), line(0, 9), line(2, 4), line(0, 12)]
    script = Script([[*lines[:3], error], [lines[3], error], [lines[4]]], [AWAY, AWAY, None, None])
    assert list(script.follow(tail=7)) == lines
    asked = {"stage": None, "follow": True}
    assert script.asked == [
        {**asked, "tail": 7, "positions": {}},
        {**asked, "tail": None, "positions": {0: 9, 1: 3}},
        {**asked, "tail": None, "positions": {0: 9, 1: 3, 2: 4}},
    ]


def test_follow_that_has_given_no_line_yet_asks_for_the_same_again() -> None:
    script = Script([[AWAY], [line(0, 5)]], [None])
    assert list(script.follow(tail=7)) == [line(0, 5)]
    assert [asked["tail"] for asked in script.asked] == [7, 7]


def test_follow_from_now_on_knows_where_now_is_after_a_restart_too() -> None:
    script = Script([[line(0, 5)], [AWAY], [line(0, 9), line(1, 2)]], [None])
    assert list(script.follow(tail=0)) == [line(0, 9), line(1, 2)]
    assert script.asked[0] == {"stage": None, "tail": 1, "positions": {}}
    assert [(asked["tail"], asked["positions"]) for asked in script.asked[1:]] == [(None, {0: 5})] * 2


def test_follow_gives_up_after_a_minute_of_absence_that_each_answer_ends() -> None:
    almost = [AWAY] * int(2 * ABSENCE_SECONDS - 2)
    script = Script([[AWAY], [AWAY], []], [*almost, None, *almost, None])
    assert list(script.follow()) == []
    script = Script([[AWAY]], [])
    with pytest.raises(CallError, match="away"):
        list(script.follow())
    assert ABSENCE_SECONDS < script.time <= ABSENCE_SECONDS + 1.0


@pytest.mark.parametrize(("streams", "answers"), [([[line(0, 1), GONE]], []), ([[AWAY]], [AWAY, GONE])])
def test_follow_ends_at_an_error_that_does_not_pass(
    streams: list[list[pb.ReadLogsResponse | CallError]], answers: list[CallError | None]
) -> None:
    with pytest.raises(CallError, match="gone"):
        list(Script(streams, answers).follow())
