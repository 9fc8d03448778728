"""The run state machine, as scripts: what happens on the left, what is done about it on the right."""

import pytest

from coordinator.events import (
    AgentLost,
    Assign,
    CancelAsked,
    ChangeState,
    Command,
    CommitCheckpoint,
    CommitEvaluation,
    CommitStep,
    Connected,
    Disconnected,
    Ended,
    EndKind,
    Event,
    Faulted,
    Issue,
    ItemKind,
    Progressed,
    Ready,
    Release,
    Reported,
    Saved,
    SavedShard,
    SendRendezvous,
    Started,
    StepResult,
    StoreOpened,
    Tick,
)
from coordinator.failure import Fault, FaultKind
from coordinator.records import JobError, JobState
from coordinator.run import advance, begin
from coordinator.run_state import Place, RunSetting, RunState
from coordinator.sequence import Sequence


def setting(*, total_steps: int = 3, credit: int = 2, evaluation_steps: int = 0, dp: int = 1) -> RunSetting:
    """Two stages, ``dp`` replicas; worker w runs on host ``h<w>``."""
    places = tuple(Place(worker=w, dp_rank=w // 2, stages=(w % 2,), agent=f"a{w}", host=f"h{w}") for w in range(2 * dp))
    sequence = Sequence(
        total_steps=total_steps,
        save_every=100,
        evaluate_every=None,
        evaluate_at_end=True,
        evaluation_steps=evaluation_steps,
    )
    return RunSetting(places=places, sequence=sequence, credit=credit, step_timeout_seconds=60, lease_seconds=10)


class Script:
    """Drives a run and writes down what it does, in short words."""

    def __init__(self, run_setting: RunSetting) -> None:
        self.state, _ = begin(run_setting, now=0.0)

    def feed(self, *events: Event, now: float = 1.0) -> list[str]:
        """Return the commands of these events."""
        done: list[Command] = []
        for event in events:
            self.state, commands = advance(self.state, event, now)
            done.extend(commands)
        return [short(command) for command in done]

    def make_ready(self, *, now: float = 1.0) -> list[str]:
        """Bring all workers up."""
        workers = range(len(self.state.members))
        for w in workers:
            self.feed(Started(w, 100 + w, f"logs/worker-{w}.log"), Connected(w, 100 + w), now=now)
        self.feed(StoreOpened(0, "h0:1"), now=now)
        return self.feed(*(Ready(w, 10, 20) for w in workers), now=now)


def short(command: Command) -> str:  # noqa: PLR0911  # one for each kind of command
    match command:
        case Assign(worker):
            return f"assign {worker}"
        case Release(worker, grace_seconds):
            return f"release {worker} {grace_seconds:g}"
        case SendRendezvous(workers, address):
            return f"meet {','.join(map(str, workers))} {address}"
        case Issue(item):
            return f"issue {item}"
        case CommitStep(step, results):
            return f"commit {step} of {','.join(str(result.worker) for result in results)}"
        case CommitCheckpoint(step, shards):
            return f"manifest {step} of {len(shards)}"
        case CommitEvaluation(after):
            return f"evaluated {after}"
        case ChangeState(state=state):
            return str(state)


def step(number: int, worker: int) -> Reported:
    return Reported(ItemKind.TRAIN, number, StepResult(worker=worker))


def evaluated(number: int, worker: int) -> Reported:
    return Reported(ItemKind.EVALUATE, number, StepResult(worker=worker))


def saved(number: int, worker: int) -> Saved:
    shard = SavedShard(file=f"stage-{worker:03}.safetensors", kind="parameters", stage=worker, sha256="0", num_bytes=1)
    return Saved(worker, number, (shard,))


def exit_of(worker: int, code: int = 0) -> tuple[Event, Event]:
    return Ended(worker, EndKind.EXITED, exit_code=code), Disconnected(worker)


def exception(worker: int, message: str = "boom", *, peer_lost: bool = False) -> Faulted:
    kind = FaultKind.PEER if peer_lost else FaultKind.EXCEPTION
    error = JobError(
        type="PeerLostError" if peer_lost else "ValueError",
        message=message,
        worker=worker,
        stage=worker,
        step=2,
        log=f"logs/worker-{worker}.log",
    )
    return Faulted(Fault(kind=kind, error=error))


def final_change(script: Script, *events: Event, now: float = 2.0) -> ChangeState:
    """Feed events, and return the final change of state among the commands."""
    for event in events:
        script.state, commands = advance(script.state, event, now)
        for command in commands:
            if isinstance(command, ChangeState) and command.state.is_final:
                return command
    raise AssertionError(f"the run is {script.state.state}, not over")


def test_begin_two_places_assigns_both() -> None:
    state, commands = begin(setting(), now=0.0)
    assert state.state is JobState.STARTING
    assert [short(command) for command in commands] == ["STARTING", "assign 0", "assign 1"]
    first = commands[0]
    assert isinstance(first, ChangeState)
    assert first.reason == "2 workers load on h0, h1"


def test_rendezvous_store_opens_between_two_hellos_reaches_both() -> None:
    script = Script(setting())
    assert script.feed(Connected(0, 1), StoreOpened(0, "h0:99")) == ["meet 0 h0:99"]
    assert script.feed(Connected(1, 2)) == ["meet 1 h0:99"]


def test_run_all_ready_starts_with_credit_steps() -> None:
    assert Script(setting(credit=2)).make_ready() == ["RUNNING", "issue step 1", "issue step 2"]
    assert Script(setting(credit=1)).make_ready() == ["RUNNING", "issue step 1"]


def test_run_whole_job_commits_in_order_and_ends_with_save_evaluation_stop() -> None:
    script = Script(setting(total_steps=3, evaluation_steps=2))
    script.make_ready()
    assert script.feed(step(1, 0)) == []
    assert script.feed(step(1, 1)) == ["issue step 3", "issue the checkpoint of step 3", "commit 1 of 0,1"]
    assert script.feed(step(2, 1), step(2, 0)) == ["issue evaluation step 1 after step 3", "commit 2 of 0,1"]
    assert script.feed(step(3, 0), step(3, 1)) == [
        "issue evaluation step 2 after step 3",
        "issue the end",
        "commit 3 of 0,1",
    ]
    assert script.feed(saved(3, 1), saved(3, 0)) == ["manifest 3 of 2"]
    assert script.feed(evaluated(1, 0), evaluated(1, 1), evaluated(2, 0)) == []
    assert script.feed(evaluated(2, 1)) == ["evaluated 3"]
    change = final_change(script, *exit_of(0), *exit_of(1))
    assert (change.state, change.reason, change.step) == (JobState.SUCCEEDED, "all 3 steps are done", 3)


def test_run_later_step_reported_first_waits_for_the_earlier_one() -> None:
    script = Script(setting(total_steps=9))
    script.make_ready()
    assert script.feed(step(1, 0), step(2, 0)) == []
    assert script.feed(step(1, 1), step(2, 1)) == [
        "issue step 3",
        "commit 1 of 0,1",
        "issue step 4",
        "commit 2 of 0,1",
    ]


def test_run_two_replicas_save_is_asked_of_the_first_only() -> None:
    script = Script(setting(total_steps=1, dp=2))
    script.make_ready()
    script.feed(*(step(1, w) for w in range(4)))
    assert script.feed(saved(1, 0), saved(1, 1)) == ["manifest 1 of 2"]


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


def test_sequence_evaluates_and_saves_where_due() -> None:
    sequence = Sequence(total_steps=4, save_every=2, evaluate_every=3, evaluate_at_end=True, evaluation_steps=1)
    told, item = [], sequence.after(None)
    while item is not None:
        told.append(f"{item.kind.name.lower()} {item.after}")
        item = sequence.after(item)
    assert ", ".join(told) == "train 1, train 2, save 2, train 3, evaluate 3, train 4, save 4, evaluate 4, stop 4"
