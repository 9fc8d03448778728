"""What an agent decides."""

import signal
from dataclasses import replace

import pytest

from stage_worker.agent_events import (
    Abandoned,
    Assigned,
    Command,
    CoordinatorFound,
    CoordinatorLost,
    EndCause,
    Event,
    Exited,
    KillExecutor,
    Refused,
    Released,
    SayEnded,
    StartExecutor,
    StartFailed,
    StartStandby,
    Ticked,
    Work,
)
from stage_worker.agent_state import STANDBY_DELAY_SECONDS, AgentState, advance, readiness
from stage_worker.engine.ledger import Activity
from stage_worker.record import Record, RecordReader, Snapshot

WORK = Work(
    job="a",
    attempt=1,
    worker=3,
    dp_rank=1,
    stages=(1,),
    lease_seconds=10.0,
    step_timeout_seconds=60.0,
    assignment="{}",
)
BLANK = RecordReader(Record.create()).read()


def snapshot(
    *, pulse: float = 0.0, activity: Activity = Activity.OTHER, stage: int | None = None, since: float = 0.0
) -> Snapshot:
    return replace(BLANK, pulse=pulse, account=(activity, stage), since=since)


class Story:
    """An agent to which things happen, one after the other."""

    def __init__(self) -> None:
        self.state = AgentState(standby_at=None, orphan_seconds=30.0)
        self.now = 100.0

    def hear(self, event: Event, *, after: float = 0.0) -> tuple[Command, ...]:
        self.now += after
        self.state, commands = advance(self.state, event, self.now)
        return commands

    def watch(self, seconds: float, look: Snapshot, *, every: float = 0.5) -> list[Command]:
        said: list[Command] = []
        for _ in range(round(seconds / every)):
            said += self.hear(Ticked(look), after=every)
        return said


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def running(story: Story) -> Story:
    assert story.hear(Assigned(WORK)) == (StartExecutor(WORK),)
    return story


def ended(commands: tuple[Command, ...]) -> SayEnded:
    (said,) = commands
    assert isinstance(said, SayEnded)
    return said


def test_assignment_on_a_busy_slot_is_refused_and_the_executor_goes_on(running: Story) -> None:
    said = ended(running.hear(Assigned(replace(WORK, job="b", attempt=2))))
    assert (said.job, said.attempt, said.cause) == ("b", 2, EndCause.NOT_STARTED)
    assert said.message == "the slot is busy with job a attempt 1"
    assert running.state.running is not None
    assert running.state.running.work == WORK


def test_assignment_that_cannot_be_obeyed_is_answered(story: Story) -> None:
    said = ended(story.hear(Refused("b", 2, "no such folder")))
    assert said == SayEnded("b", 2, EndCause.NOT_STARTED, "no such folder")


def test_executor_that_could_not_be_started_is_told_and_the_slot_is_free(running: Story) -> None:
    said = ended(running.hear(StartFailed("no memory")))
    assert (said.cause, said.message) == (EndCause.NOT_STARTED, "no memory")
    assert running.hear(Assigned(WORK)) == (StartExecutor(WORK),)


@pytest.mark.parametrize(
    ("returncode", "cause", "exit_code", "number", "text"),
    [
        (0, EndCause.EXITED, 0, 0, "exited with code 0"),
        (1, EndCause.EXITED, 1, 0, "exited with code 1"),
        (-signal.SIGKILL, EndCause.SIGNALLED, 0, 9, "signal 9 (SIGKILL)"),
        (-signal.SIGSEGV, EndCause.SIGNALLED, 0, 11, "signal 11 (SIGSEGV)"),
    ],
)
def test_executor_that_ends_by_itself_is_told_once_with_its_cause(
    running: Story, returncode: int, cause: EndCause, exit_code: int, number: int, text: str
) -> None:
    said = ended(running.hear(Exited(returncode)))
    assert (said.cause, said.exit_code, said.signal) == (cause, exit_code, number)
    assert text in said.message
    assert said.log == "logs/worker-3.log"
    assert running.state.running is None


@pytest.mark.parametrize("stage", [None, 0, 4])
def test_end_tells_the_stage_that_the_executor_computed_for(running: Story, stage: int | None) -> None:
    assert ended(running.hear(Exited(-signal.SIGKILL, stage))).stage == stage


def test_release_without_grace_kills_at_once(running: Story) -> None:
    assert running.hear(Released("a", 1, 0.0)) == (KillExecutor(),)
    assert running.hear(Released("a", 1, 0.0)) == ()  # once is enough
    assert ended(running.hear(Exited(-9))).cause is EndCause.RELEASED


def test_release_with_grace_lets_it_end_by_itself(running: Story) -> None:
    assert running.hear(Released("a", 1, 2.0)) == ()
    assert running.watch(1.5, snapshot(pulse=1.0)) == []
    assert ended(running.hear(Exited(0))).cause is EndCause.EXITED


def test_release_kills_when_the_grace_is_over(running: Story) -> None:
    running.hear(Released("a", 1, 2.0))
    assert running.watch(2.5, snapshot(pulse=1.0)) == [KillExecutor()]
    assert ended(running.hear(Exited(-9))).cause is EndCause.RELEASED


def test_second_release_never_lengthens_the_first(running: Story) -> None:
    running.hear(Released("a", 1, 1.0))
    running.hear(Released("a", 1, 60.0))
    assert running.watch(1.5, snapshot(pulse=1.0)) == [KillExecutor()]


@pytest.mark.parametrize(("job", "attempt"), [("a", 2), ("b", 1)])
def test_release_of_another_attempt_changes_nothing(running: Story, job: str, attempt: int) -> None:
    assert running.hear(Released(job, attempt, 0.0)) == ()


def test_agent_told_to_stop_kills_the_executor(running: Story) -> None:
    assert running.hear(Abandoned("told to stop")) == (KillExecutor(),)
    said = ended(running.hear(Exited(-9)))
    assert (said.cause, said.message) == (EndCause.RELEASED, "the agent killed the executor: told to stop")


def test_agent_told_to_stop_without_an_executor_does_nothing(story: Story) -> None:
    assert story.hear(Abandoned("told to stop")) == ()


def test_lost_coordinator_has_the_orphan_limit_to_come_back(running: Story) -> None:
    assert running.hear(CoordinatorLost("stream broke")) == ()
    look = replace(snapshot(), pulse=1.0)
    for beat in range(1, 60):
        running.hear(CoordinatorLost("nobody answers"))  # again and again; the first one counts
        assert running.hear(Ticked(replace(look, pulse=float(beat))), after=0.5) == ()
    assert running.hear(Ticked(replace(look, pulse=60.0)), after=0.5) == (KillExecutor(),)
    said = ended(running.hear(Exited(-9)))
    assert said.cause is EndCause.RELEASED
    assert "no coordinator came back within 30 s (stream broke)" in said.message


def test_coordinator_that_comes_back_in_time_finds_the_executor_and_the_next_loss_begins_anew(running: Story) -> None:
    running.hear(CoordinatorLost("stream broke"))
    running.hear(CoordinatorFound(), after=29.9)
    assert running.watch(9.0, snapshot()) == []
    running.hear(CoordinatorLost("stream broke"))
    assert running.hear(Ticked(snapshot(pulse=1.0)), after=29.9) == ()
    assert running.hear(Ticked(snapshot(pulse=1.0)), after=0.2) == (KillExecutor(),)


def test_lost_coordinator_without_an_executor_changes_nothing(story: Story) -> None:
    before = story.state
    assert story.hear(CoordinatorLost("stream broke")) == ()
    assert story.hear(CoordinatorFound()) == ()
    assert story.state == before


def test_same_assignment_again_is_no_second_executor_and_no_refusal(running: Story) -> None:
    assert running.hear(Assigned(WORK)) == ()
    assert running.state.running is not None


def test_last_end_is_kept_for_a_coordinator_that_did_not_hear_it(running: Story) -> None:
    assert running.state.last_said is None
    said = ended(running.hear(Exited(3)))
    running.hear(CoordinatorLost("stream broke"), after=5.0)
    running.hear(Ticked(None), after=5.0)
    assert running.state.last_said == said


def test_executor_killed_by_the_agent_but_dead_by_another_signal_keeps_its_own_cause(running: Story) -> None:
    running.hear(Released("a", 1, 0.0))
    assert ended(running.hear(Exited(-signal.SIGSEGV))).cause is EndCause.SIGNALLED


def test_executor_that_imports_for_longer_than_a_command_may_compute_is_not_stuck() -> None:
    story = Story()
    story.hear(Assigned(replace(WORK, step_timeout_seconds=2.0)))
    assert story.watch(100.0, BLANK) == []


def test_pulse_that_stands_still_over_the_lease_is_silent(running: Story) -> None:
    assert running.watch(10.0, snapshot(pulse=1.0)) == []
    assert running.watch(1.0, snapshot(pulse=1.0)) == [KillExecutor()]
    said = ended(running.hear(Exited(-9)))
    assert said.cause is EndCause.SILENT
    assert "limits.lease_seconds is 10" in said.message


def test_pulse_that_goes_on_is_never_silent(running: Story) -> None:
    for beat in range(1, 100):
        assert running.hear(Ticked(snapshot(pulse=float(beat))), after=0.5) == ()


def test_gap_in_which_the_agent_itself_slept_is_not_held_against_the_executor(running: Story) -> None:
    running.hear(Ticked(snapshot(pulse=1.0)))
    assert running.hear(Ticked(snapshot(pulse=1.0)), after=3600.0) == ()


def test_executor_that_still_imports_has_longer_than_the_lease(running: Story) -> None:
    assert running.watch(100.0, snapshot(pulse=0.0)) == []
    assert running.watch(30.0, snapshot(pulse=0.0)) == [KillExecutor()]
    assert ended(running.hear(Exited(-9))).cause is EndCause.SILENT


@pytest.mark.parametrize(
    ("activity", "stage", "named"),
    [
        (Activity.BACKWARD, 4, "the backward of stage 4 after"),
        (Activity.INPUT_GRADIENT, 1, "the input gradient of stage 1 after"),
        (Activity.WEIGHT_GRADIENT, 0, "the weight gradient of stage 0 after"),
        (Activity.STEP, None, "the step after"),
    ],
)
def test_computation_over_the_step_timeout_is_stuck(
    activity: Activity, stage: int | None, named: str, running: Story
) -> None:
    said: list[Command] = []
    for beat in range(1, 130):  # the pulse goes on, the computation does not end
        look = snapshot(pulse=float(beat), activity=activity, stage=stage, since=7.0)
        said += running.hear(Ticked(look), after=0.5)
    assert said == [KillExecutor()]
    answer = ended(running.hear(Exited(-9)))
    assert answer.cause is EndCause.STUCK
    assert named in answer.message
    assert "limits.step_timeout_seconds is 60" in answer.message


def test_many_short_computations_are_not_stuck(running: Story) -> None:
    for beat in range(1, 300):
        look = snapshot(pulse=float(beat), activity=Activity.FORWARD, since=float(beat))
        assert running.hear(Ticked(look), after=0.5) == ()


@pytest.mark.parametrize("activity", [each for each in Activity if not each.is_compute])
def test_waiting_however_long_is_never_stuck(running: Story, activity: Activity) -> None:
    for beat in range(1, 300):
        look = snapshot(pulse=float(beat), activity=activity, since=7.0)
        assert running.hear(Ticked(look), after=0.5) == ()


def test_standby_is_started_first_and_again_some_time_after_a_job() -> None:
    story = Story()
    story.state = AgentState()
    assert story.hear(Ticked(None)) == (StartStandby(),)
    assert story.hear(Ticked(None), after=60.0) == ()
    story.hear(Assigned(WORK))
    assert story.hear(Ticked(snapshot(pulse=1.0)), after=1.0) == ()  # it would take the job's processor
    story.hear(Exited(0))
    assert story.hear(Ticked(None), after=STANDBY_DELAY_SECONDS / 2) == ()
    assert story.hear(Ticked(None), after=STANDBY_DELAY_SECONDS / 2) == (StartStandby(),)


def test_standby_that_is_not_wanted_is_never_started() -> None:
    story = Story()
    story.state = AgentState(wants_standby=False)
    assert story.hear(Ticked(None)) == ()
    story.hear(Assigned(WORK))
    story.hear(Exited(0))
    assert story.hear(Ticked(None), after=60.0) == ()


def test_readiness_follows_the_stage_through_the_life_of_a_job(story: Story) -> None:
    loaded = replace(BLANK, loaded=True)
    assert readiness(story.state, None) == (False, "no executor is at work: no job has run here yet")
    story.hear(Assigned(WORK))
    assert readiness(story.state, BLANK) == (False, "the executor of job a attempt 1 is loading stage 1")
    assert readiness(story.state, loaded) == (True, "stage 1 of job a attempt 1 is loaded")
    story.hear(Released("a", 1, 5.0))
    assert readiness(story.state, loaded)[0] is False
    story.hear(Exited(1))
    ready, reason = readiness(story.state, None)
    assert not ready
    assert "job a attempt 1: the executor exited with code 1" in reason


def test_readiness_names_all_stages_of_a_worker(story: Story) -> None:
    story.hear(Assigned(replace(WORK, stages=(0, 3))))
    assert readiness(story.state, BLANK) == (False, "the executor of job a attempt 1 is loading stages 0, 3")
    loaded = replace(BLANK, loaded=True)
    assert readiness(story.state, loaded) == (True, "stages 0, 3 of job a attempt 1 are loaded")


def test_readiness_is_lost_as_soon_as_the_executor_is_killed(running: Story) -> None:
    running.hear(Abandoned("stream lost"))
    assert readiness(running.state, replace(BLANK, loaded=True)) == (
        False,
        "the executor of job a attempt 1 is being ended: stream lost",
    )
