"""The run state machine from its begin to the end of a run that goes well, as scripts."""

from dataclasses import replace

from coordinator.events import Connected, Ready, Started, StoreOpened
from coordinator.records import JobState
from coordinator.run import begin
from coordinator.run_commands import ChangeState
from coordinator.run_state import Life
from coordinator.sequence import Sequence
from tests.unit.run_script import Script, evaluated, exit_of, final_change, saved, setting, short, step


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


def test_run_starts_though_an_agent_tells_late_that_it_started_what_is_ready() -> None:
    """Agent and executor have a stream each, and under load the agent's word comes last; a job waited for ever."""
    script = Script(setting(credit=1))
    script.feed(Connected(0, 1), StoreOpened(0, "h0:99"), Connected(1, 2), Ready(1, 10, 20))
    assert script.feed(Started(1, 2, "logs/worker-1.log")) == []
    assert script.feed(Ready(0, 10, 20)) == ["RUNNING", "issue step 1"]
    assert script.feed(Started(0, 1, "logs/worker-0.log")) == []
    assert [(member.life, member.log) for member in script.state.members] == [
        (Life.READY, "logs/worker-0.log"),
        (Life.READY, "logs/worker-1.log"),
    ]


def test_run_whole_job_commits_in_order_and_ends_with_save_evaluation_stop() -> None:
    script = Script(setting(total_steps=3, evaluation_steps=2))
    script.make_ready()
    assert script.feed(step(1, 0)) == []
    assert script.feed(step(1, 1)) == ["issue step 3", "issue the checkpoint of step 3", "commit 1 of 0,1"]
    assert script.feed(step(2, 1), step(2, 0)) == [
        "issue step 1 of the evaluation on dev after step 3",
        "commit 2 of 0,1",
    ]
    assert script.feed(step(3, 0), step(3, 1)) == [
        "issue step 2 of the evaluation on dev after step 3",
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


def test_sequence_goes_through_all_splits_of_an_evaluation_before_it_goes_on() -> None:
    sequence = Sequence(
        total_steps=2, save_every=9, evaluate_every=1, evaluate_at_end=False, evaluated=(("matched", 2), ("other", 1))
    )
    told, item = [], sequence.after(None)
    while item is not None:
        told.append(f"{item.kind.name.lower()} {item.after} {item.split}{item.step if item.split else ''}".rstrip())
        item = sequence.after(item)
    one = "train {0}, {1}evaluate {0} matched1, evaluate {0} matched2, evaluate {0} other1"
    assert ", ".join(told) == f"{one.format(1, '')}, {one.format(2, 'save 2, ')}, stop 2"


def test_run_that_predicts_begins_with_the_rows_and_saves_nothing() -> None:
    sequence = Sequence(
        total_steps=0, save_every=9, evaluate_every=None, evaluate_at_end=True, evaluated=(("test", 2),)
    )
    script = Script(replace(setting(), sequence=sequence))
    assert script.make_ready() == [
        "RUNNING",
        "issue step 1 of the evaluation on test after step 0",
        "issue step 2 of the evaluation on test after step 0",
        "issue the end",
    ]
    assert script.feed(*(evaluated(number, worker) for number in (1, 2) for worker in (0, 1))) == ["evaluated 0"]
    change = final_change(script, *exit_of(0), *exit_of(1))
    assert (change.state, change.reason) == (JobState.SUCCEEDED, "all rows are predicted")


def test_run_evaluates_a_split_to_its_end_before_it_begins_the_next() -> None:
    """Rows tell their split's step only, so two splits are never out at once."""
    sequence = Sequence(
        total_steps=1, save_every=9, evaluate_every=None, evaluate_at_end=True, evaluated=(("a", 1), ("b", 1))
    )
    script = Script(replace(setting(credit=4), sequence=sequence))
    script.make_ready()
    script.feed(step(1, 0), step(1, 1), saved(1, 0), saved(1, 1))
    assert script.feed(evaluated(1, 0)) == []
    assert script.feed(evaluated(1, 1)) == [
        "evaluated 1",
        "issue step 1 of the evaluation on b after step 1",
        "issue the end",
    ]


def test_sequence_evaluates_and_saves_where_due() -> None:
    sequence = Sequence(
        total_steps=4, save_every=2, evaluate_every=3, evaluate_at_end=True, evaluated=(("validation", 1),)
    )
    told, item = [], sequence.after(None)
    while item is not None:
        told.append(f"{item.kind.name.lower()} {item.after}")
        item = sequence.after(item)
    assert ", ".join(told) == "train 1, train 2, save 2, train 3, evaluate 3, train 4, save 4, evaluate 4, stop 4"
