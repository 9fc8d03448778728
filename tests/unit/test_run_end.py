"""How runs end that fail or are cancelled, as scripts of the state machine."""

from dataclasses import replace

import pytest

from coordinator.events import (
    AgentLost,
    CancelAsked,
    Connected,
    Disconnected,
    Ended,
    EndKind,
    Event,
    Progressed,
    Ready,
    Started,
    StoreOpened,
    Tick,
)
from coordinator.records import JobError, JobState
from coordinator.run_state import RunState
from tests.unit.run_script import Script, evaluated, exception, exit_of, final_change, place, saved, setting, step


def test_run_worker_raises_fails_with_its_exception() -> None:
    script = Script(setting())
    script.make_ready()
    assert script.feed(exception(1)) == ["release 0 1", "release 1 1"]
    change = final_change(script, *exit_of(1, 1), Ended(0, EndKind.RELEASED), Disconnected(0))
    assert change.state is JobState.FAILED
    assert change.error == JobError(
        type="ValueError", message="boom", worker=1, stage=1, step=2, log="logs/worker-1.log"
    )
    assert change.reason == "boom; see logs/worker-1.log"


CAUSES: dict[str, tuple[tuple[Event, ...], tuple[str, int]]] = {
    "lost peer heard first, exception later": (
        (exception(0, peer_lost=True), exception(1), *exit_of(0, 1), *exit_of(1, 1)),
        ("ValueError", 1),
    ),
    "lost peer heard first, signal later": (
        (
            exception(0, peer_lost=True),
            *exit_of(0, 1),
            Ended(1, EndKind.SIGNALLED, signal=9),
            Disconnected(1),
        ),
        ("signal", 1),
    ),
    "lost agent and lost peer": (
        (exception(0, peer_lost=True), AgentLost(1, "no heartbeat for 10 s"), *exit_of(0, 1)),
        ("lost", 1),
    ),
    "process ended before its stream was read": (
        (Ended(1, EndKind.EXITED, exit_code=1), exception(1), Disconnected(1), *exit_of(0, 1)),
        ("ValueError", 1),
    ),
    "exit without a word": ((*exit_of(1, 3), Ended(0, EndKind.RELEASED), Disconnected(0)), ("exit", 1)),
    "clean exit before the end": ((*exit_of(0, 0), Ended(1, EndKind.RELEASED), Disconnected(1)), ("exit", 0)),
    "stuck": ((Ended(0, EndKind.STUCK), Disconnected(0), Ended(1, EndKind.RELEASED), Disconnected(1)), ("stuck", 0)),
    "silent": ((Ended(0, EndKind.SILENT), Disconnected(0), Ended(1, EndKind.RELEASED), Disconnected(1)), ("silent", 0)),
    "not started": ((Ended(0, EndKind.NOT_STARTED), Disconnected(0), *exit_of(1, 0)), ("exit", 0)),
    "only lost peers": ((exception(1, peer_lost=True), *exit_of(1, 1), *exit_of(0, 0)), ("PeerLostError", 1)),
    "step that was not asked for": ((step(7, 1), *exit_of(1, 0), *exit_of(0, 0)), ("protocol", 1)),
}


@pytest.mark.parametrize("name", CAUSES)
def test_run_fault_names_the_root_cause(name: str) -> None:
    events, (kind, worker) = CAUSES[name]
    script = Script(setting())
    script.make_ready()
    change = final_change(script, *events)
    assert change.state is JobState.FAILED
    assert change.error is not None
    assert (change.error.type, change.error.worker, change.error.stage) == (kind, worker, worker)


def test_run_signal_nine_reason_names_worker_signal_and_log() -> None:
    script = Script(setting())
    script.make_ready()
    change = final_change(
        script, Ended(1, EndKind.SIGNALLED, signal=9), Disconnected(1), Ended(0, EndKind.RELEASED), Disconnected(0)
    )
    assert change.reason == "worker 1 (stage 1) on h1 was ended by signal 9 (SIGKILL); see logs/worker-1.log"
    assert change.error is not None
    assert change.error.step == 1


def test_run_fault_after_the_last_step_is_told_of_the_last_step() -> None:
    script = Script(setting(total_steps=1))
    script.make_ready()
    script.feed(step(1, 0), step(1, 1))
    change = final_change(script, *exit_of(1, 3), Ended(0, EndKind.RELEASED), Disconnected(0))
    assert change.error is not None
    assert (change.step, change.error.step) == (1, 1)


@pytest.mark.parametrize(("at_work", "told"), [(3, 3), (0, 0), (None, 0)])
def test_run_fault_of_a_worker_with_several_stages_is_told_of_the_stage_at_work(at_work: int | None, told: int) -> None:
    v_shaped = replace(setting(), places=(place(0, stages=(0, 3)), place(1, stages=(1, 2))))
    script = Script(v_shaped)
    script.make_ready()
    ends = (Ended(0, EndKind.STUCK, stage=at_work), Disconnected(0), Ended(1, EndKind.RELEASED), Disconnected(1))
    change = final_change(script, *ends)
    assert change.reason.startswith("worker 0 (stages 0, 3) on h0 was stuck")
    assert change.error is not None
    assert (change.error.worker, change.error.stage) == (0, told)


def test_run_fault_is_told_of_the_step_that_its_worker_was_in() -> None:
    script = Script(setting(total_steps=9))
    script.make_ready()
    script.feed(step(1, 0))
    change = final_change(script, *exit_of(0, 1), *exit_of(1, 0))
    assert change.error is not None
    assert (change.error.worker, change.error.step) == (0, 2)


def test_run_fault_in_an_evaluation_is_told_of_the_step_that_it_evaluates() -> None:
    """The seventh step of an evaluation is no training step 7: an executor names none."""
    script = Script(setting(total_steps=2, evaluation_steps=9))
    script.make_ready()
    for number in (1, 2):
        script.feed(step(number, 0), step(number, 1))
    script.feed(saved(2, 0), saved(2, 1))
    for number in range(1, 7):
        script.feed(evaluated(number, 0), evaluated(number, 1))
    change = final_change(script, exception(1, step=None), *exit_of(1, 1), *exit_of(0, 0))
    assert change.error is not None
    assert (change.error.type, change.error.worker, change.error.step) == ("ValueError", 1, 2)


def test_run_fault_while_loading_is_told_of_no_step() -> None:
    script = Script(setting())
    change = final_change(script, exception(1, step=None), *exit_of(1, 1), *exit_of(0, 0))
    assert change.error is not None
    assert change.error.step is None


def test_run_exit_before_the_log_was_opened_points_at_the_agents_log() -> None:
    script = Script(setting())
    change = final_change(script, *exit_of(1, 1), *exit_of(0, 1))
    assert change.reason.startswith(
        "worker 1 (stage 1) on h1 exited with code 1, before it wrote to its own log; the log of its agent says why"
    )


def test_run_after_a_fault_nothing_is_issued_or_committed() -> None:
    script = Script(setting(total_steps=9))
    script.make_ready()
    script.feed(step(1, 0), exception(1))
    assert script.feed(step(1, 1), step(2, 0), step(2, 1)) == []


def test_run_released_worker_never_ends_is_given_up_and_named() -> None:
    script = Script(setting())
    script.make_ready()
    script.feed(exception(1), *exit_of(1, 1), now=5.0)
    assert script.feed(Tick(), now=15.9) == []
    change = final_change(script, Tick(), now=16.1)
    assert change.reason == "boom; see logs/worker-1.log; not seen to end: worker 0 (stage 0) on h0"


def test_run_not_ready_in_time_fails_naming_who_is_late() -> None:
    script = Script(setting())
    script.feed(Started(0, 1, "logs/worker-0.log"), Connected(0, 1), StoreOpened(0, "x:1"), Ready(0, 1, 1), now=3.0)
    assert script.feed(Tick(), now=119.0) == []
    assert script.feed(Tick(), now=121.0) == ["release 0 1", "release 1 1"]
    change = final_change(script, *exit_of(0), Ended(1, EndKind.RELEASED), now=122.0)
    assert change.reason == "not ready within 120 s: worker 1 (stage 1) on h1; see the logs"


def test_run_without_news_fails_naming_who_was_waited_for() -> None:
    script = Script(setting())
    script.make_ready()
    script.feed(step(1, 0), now=10.0)
    assert script.feed(Tick(), now=109.0) == []
    assert script.feed(Progressed(1), Tick(), now=110.5) == []
    assert script.feed(Tick(), now=211.0) == ["release 0 1", "release 1 1"]
    change = final_change(script, Ended(0, EndKind.RELEASED), Disconnected(0), AgentLost(1, "gone"))
    assert change.reason.startswith("no progress for 100 s on step 1; waited for worker 1 (stage 1) on h1")


def test_run_whose_workers_finish_commands_of_a_long_step_goes_on() -> None:
    script = Script(setting())
    script.make_ready()
    for now in range(10, 1000, 10):
        assert script.feed(Progressed(0, seconds_ago=float(now)), Progressed(1, seconds_ago=9.0), Tick(), now=now) == []
    assert script.feed(Progressed(0, seconds_ago=92.0), Progressed(1, seconds_ago=18.0), Tick(), now=999.0) == []
    assert script.feed(Progressed(1, seconds_ago=99.0), Tick(), now=1081.0) == []
    assert script.feed(Progressed(1, seconds_ago=101.0), Tick(), now=1082.5) == ["release 0 1", "release 1 1"]


def test_cancel_while_running_appends_stop_after_what_was_issued() -> None:
    script = Script(setting(total_steps=9))
    script.make_ready()
    asked = CancelAsked("cancelled by the user", 15.0)
    assert script.feed(asked) == ["CANCELLING", "issue the end"]
    assert script.feed(step(1, 0), step(1, 1), step(2, 0), step(2, 1)) == ["commit 1 of 0,1", "commit 2 of 0,1"]
    change = final_change(script, *exit_of(0), *exit_of(1))
    assert (change.state, change.step) == (JobState.CANCELLED, 2)
    assert change.reason == "cancelled by the user; step 2 was the last one"


def test_cancel_past_its_grace_releases_at_once() -> None:
    script = Script(setting(total_steps=9))
    script.make_ready()
    script.feed(CancelAsked("cancelled by the user", 15.0), now=2.0)
    assert script.feed(Tick(), now=16.9) == []
    assert script.feed(Tick(), now=17.0) == ["release 0 0", "release 1 0"]
    ends = (Ended(0, EndKind.RELEASED), Disconnected(0), Ended(1, EndKind.RELEASED), Disconnected(1))
    assert final_change(script, *ends).state is JobState.CANCELLED


def test_cancel_while_loading_releases_at_once() -> None:
    script = Script(setting())
    assert script.feed(CancelAsked("no longer wanted", 15.0)) == ["CANCELLING", "release 0 0", "release 1 0"]
    change = final_change(script, Ended(0, EndKind.RELEASED), Ended(1, EndKind.RELEASED))
    assert (change.state, change.step) == (JobState.CANCELLED, 0)


def test_cancel_asked_twice_keeps_the_shorter_grace() -> None:
    script = Script(setting(total_steps=9))
    script.make_ready()
    script.feed(CancelAsked("first", 15.0), CancelAsked("second", 1.0), now=2.0)
    assert script.feed(Tick(), now=3.0) == ["release 0 0", "release 1 0"]


def test_cancel_after_all_work_is_committed_changes_nothing() -> None:
    script = Script(setting(total_steps=1))
    script.make_ready()
    script.feed(step(1, 0), step(1, 1), saved(1, 0), saved(1, 1))
    assert script.feed(CancelAsked("too late", 15.0)) == []
    assert final_change(script, *exit_of(0), *exit_of(1)).state is JobState.SUCCEEDED


def test_run_executor_hangs_after_stop_is_released_and_the_job_succeeds() -> None:
    script = Script(setting(total_steps=1))
    script.make_ready()
    script.feed(step(1, 0), step(1, 1), saved(1, 0), saved(1, 1), now=5.0)
    script.feed(*exit_of(0), now=6.0)
    assert script.feed(Tick(), now=35.0) == ["release 1 0"]
    assert final_change(script, Ended(1, EndKind.RELEASED), Disconnected(1)).state is JobState.SUCCEEDED


def test_run_agent_lost_after_all_work_is_committed_leaves_the_job_succeeded() -> None:
    script = Script(setting(total_steps=1))
    script.make_ready()
    script.feed(step(1, 0), step(1, 1), saved(1, 0), saved(1, 1))
    change = final_change(script, *exit_of(0), AgentLost(1, "no heartbeat for 10 s"))
    assert (change.state, change.reason) == (JobState.SUCCEEDED, "all 1 steps are done")


def test_run_last_report_read_after_the_process_ended_still_counts() -> None:
    script = Script(setting(total_steps=1))
    script.make_ready()
    script.feed(step(1, 0), step(1, 1), saved(1, 0), Ended(1, EndKind.EXITED), now=5.0)
    assert script.feed(saved(1, 1), now=5.1) == ["manifest 1 of 2"]
    assert final_change(script, Disconnected(1), *exit_of(0)).state is JobState.SUCCEEDED


def test_run_process_ended_and_stream_stays_open_is_taken_as_gone() -> None:
    script = Script(setting())
    script.make_ready()
    script.feed(Ended(1, EndKind.SIGNALLED, signal=11), now=5.0)
    assert script.feed(Tick(), now=9.9) == []
    assert script.feed(Tick(), now=10.0) == ["release 0 1"]


def test_advance_after_the_end_does_nothing() -> None:
    script = Script(setting())
    script.make_ready()
    final_change(script, exception(1), *exit_of(0), *exit_of(1))
    before: RunState = script.state
    assert script.feed(step(1, 0), Tick(), CancelAsked("late", 1.0), exception(0)) == []
    assert script.state == before
