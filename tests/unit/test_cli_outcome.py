"""Watching a job: endings, absences of the coordinator, time limits, on a clock of the test's own."""

from collections.abc import Iterable

import grpc
import pytest
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.client import CallError
from coordinator.cli.exits import CliError
from coordinator.cli.outcome import EXIT_CODES, outcome_line, watch

GONE = CallError(grpc.StatusCode.UNAVAILABLE, "away")
RUNNING = pb.Job(id="j", state=pb.JOB_STATE_RUNNING, step=1)
ENDED = pb.Job(id="j", state=pb.JOB_STATE_SUCCEEDED, step=2, reason="all steps done")


class Clock:
    """Time that passes only while somebody pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds


class ScriptedJobs:
    """Answers from a list; the last one again and again."""

    def __init__(self, answers: Iterable[pb.Job | CallError]) -> None:
        self._answers = list(answers)

    def job(self, job_id: str) -> pb.Job:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, CallError):
            raise answer
        return answer


def watch_script(
    answers: Iterable[pb.Job | CallError], *, timeout_seconds: float | None = None
) -> tuple[pb.Job, list[int], float]:
    clock, shown = Clock(), []
    job = watch(
        ScriptedJobs(answers),
        "j",
        on_change=lambda seen: shown.append(seen.step),
        timeout_seconds=timeout_seconds,
        pause=clock.pause,
        now=lambda: clock.now,
    )
    return job, shown, clock.now


def test_watch_until_the_end_shows_each_answer_and_returns_the_last() -> None:
    job, shown, _ = watch_script([RUNNING, RUNNING, ENDED])
    assert job == ENDED
    assert shown == [1, 1, 2]


def test_watch_outlives_a_coordinator_that_is_away_for_half_a_minute() -> None:
    job, _, seconds = watch_script([RUNNING, *[GONE] * 60, ENDED])
    assert job == ENDED
    assert seconds == pytest.approx(30.5)


def test_watch_gives_a_coordinator_up_that_stays_away_for_a_minute() -> None:
    with pytest.raises(CallError, match="away"):
        watch_script([RUNNING, GONE])


def test_watch_counts_absence_from_the_last_answer() -> None:
    job, _, seconds = watch_script([*[GONE] * 100, RUNNING, *[GONE] * 100, ENDED])
    assert job == ENDED
    assert seconds > 100


def test_watch_an_unknown_job_is_told_at_once() -> None:
    with pytest.raises(CallError, match="no job"):
        watch_script([CallError(grpc.StatusCode.NOT_FOUND, "no job"), ENDED])


def test_watch_past_its_time_limit_exits_5_and_says_that_the_job_goes_on() -> None:
    with pytest.raises(CliError, match="has not ended in 3 s; it goes on") as raised:
        watch_script([RUNNING], timeout_seconds=3)
    assert raised.value.code == 5


def test_exit_codes_of_the_final_states_are_the_contracts() -> None:
    by_name = {pb.JobState.Name(state).removeprefix("JOB_STATE_"): int(code) for state, code in EXIT_CODES.items()}
    assert by_name == {"SUCCEEDED": 0, "FAILED": 1, "CANCELLED": 7}


def test_outcome_line_tells_id_state_step_and_reason() -> None:
    assert outcome_line(ENDED) == "job j SUCCEEDED at step 2: all steps done"
