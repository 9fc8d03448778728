"""Attempts that go on: behind a checkpoint, after another coordinator, and to a boundary where they stop."""

from dataclasses import replace

import pytest
from takt.v1 import data_pb2

from coordinator.dispatch import Dispatch
from coordinator.events import Item, ItemKind, Saved, StopAsked, Tick
from coordinator.feed import Feed
from coordinator.numbering import commands_before
from coordinator.records import EvaluationRecord, JobState, StepRecord
from coordinator.run import carry_on
from coordinator.run_commands import Issue
from coordinator.run_state import REJOIN_SECONDS
from coordinator.sequence import Sequence
from coordinator.start import AgreedState, Carried, Found, ReplayError, SavedState, Start
from tests.unit.run_script import Script, exit_of, saved, setting, step
from tests.unit.test_dispatch import job_plan

WHOLE = Sequence(
    total_steps=6, save_every=2, evaluate_every=3, evaluate_at_end=True, evaluated=(("dev", 2), ("other", 1))
)


def items(sequence: Sequence) -> list[Item]:
    found, item = [], sequence.after(None)
    while item is not None:
        found.append(item)
        item = sequence.after(item)
    return found


@pytest.mark.parametrize("step", [2, 4, 6])
def test_sequence_behind_a_checkpoint_is_the_rest_of_the_whole_one(step: int) -> None:
    whole = items(WHOLE)
    rest = whole[whole.index(Item(ItemKind.SAVE, step, step)) + 1 :]
    assert items(replace(WHOLE, begins_after=step)) == rest


def test_sequence_leaves_out_evaluations_that_were_made_and_no_other() -> None:
    known = frozenset({(3, "dev"), (3, "other"), (6, "dev")})
    left = [item for item in items(replace(WHOLE, begins_after=2, known=known)) if item.kind is ItemKind.EVALUATE]
    assert left == [Item(ItemKind.EVALUATE, 1, 6, "other")]


def record(number: int, *, loss: float = 0.5) -> StepRecord:
    return StepRecord(
        step=number, epoch=0, loss=loss, grad_norm=1.0, learning_rate=0.1, examples=8, tokens=9, padded_tokens=1,
        seconds=float(number), skipped=False,
    )  # fmt: skip


def test_start_compares_what_is_done_again_and_lets_the_rest_pass() -> None:
    found = Found(SavedState(step=2, parameters=(), optimizer=(), agreed=AgreedState(updates_applied=2)))
    evaluation = EvaluationRecord(step=3, split="dev", examples=1, loss=0.1, metrics=())
    start = Start.after(found, [record(number) for number in range(1, 5)], [evaluation])
    assert (start.step, start.committed, start.evaluations) == (2, 4, frozenset({(3, "dev")}))
    assert sorted(start.steps) == [3, 4]
    assert start.is_replayed(replace(record(3), seconds=99.0))
    assert not start.is_replayed(record(5))
    with pytest.raises(ReplayError, match=r"replay differs: step 4 had loss 0.5, and has 0.5000000000000001 when"):
        start.is_replayed(record(4, loss=0.5000000000000001))


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("begins_after", [0, 2])
def test_commands_are_numbered_as_the_feeds_have_numbered_them(dp: int, begins_after: int) -> None:
    """Every item of a run is dispatched and fed; after each training step the numbers are those that were given."""
    plan = job_plan(dp=dp, schedule="zbv", num_chunks=2)
    sequence = replace(WHOLE, evaluated=(("validation", 2),), begins_after=begins_after)
    dispatch, feeds = Dispatch(plan, job="j", attempt=1), [Feed(strict=False) for _ in range(2 * dp)]
    shape = data_pb2.ReplicaShape(microbatches=[data_pb2.MicrobatchShape(rows=1, width=4)] * 2)
    given = [0] * len(feeds)
    assert commands_before(plan, sequence, step=begins_after) == tuple(given)
    for item in items(sequence):
        described = data_pb2.StepDescription(step=item.step, replicas=[shape] * dp)
        for worker, message in dispatch.messages(item, described):
            (sent,) = feeds[worker].offer(message)
            given[worker] = sent.first_seq + len(sent.commands) - 1
        if item.kind is ItemKind.TRAIN:
            assert commands_before(plan, sequence, step=item.step) == tuple(given)


def test_run_is_carried_on_behind_the_journal_and_what_is_known_is_not_waited_for() -> None:
    run_setting = replace(setting(total_steps=9), sequence=replace(WHOLE, total_steps=9))
    carried = Carried(step=3, is_saved=False, evaluations=frozenset({(3, "dev")}))
    state, commands = carry_on(run_setting, 100.0, carried)
    issued = [command.item for command in commands if isinstance(command, Issue)]
    whole = items(run_setting.sequence)
    assert issued == whole[whole.index(Item(ItemKind.TRAIN, 3, 3)) + 1 :][: len(issued)]
    awaited = [entry.item for entry in state.outstanding]
    assert awaited == [item for item in issued if (item.after, item.split) != (3, "dev")]
    # The other coordinator may have issued two steps behind two that it had not written down yet.
    assert sum(item.kind is not ItemKind.SAVE for item in awaited) == 4
    assert (state.state, state.step, state.rejoin_by) == (JobState.RUNNING, 3, 100.0 + REJOIN_SECONDS)


def test_run_whose_workers_do_not_come_back_ends_and_its_job_goes_on() -> None:
    script = Script(setting())
    script.state, _ = carry_on(setting(), 0.0, Carried(step=1, is_saved=False, evaluations=frozenset()))
    assert script.feed(Tick(), now=REJOIN_SECONDS - 1) == []
    assert script.feed(Tick(), now=REJOIN_SECONDS) == ["release 0 0", "release 1 0"]
    assert script.feed(*exit_of(0), now=21.0) == []
    assert script.feed(*exit_of(1), now=21.0) == ["RECOVERING"]


def test_run_that_is_stopped_saves_behind_what_was_issued_and_its_job_goes_on() -> None:
    script = Script(setting())
    script.make_ready()
    assert script.feed(StopAsked("it is stopped", 20.0)) == ["issue the checkpoint of step 2", "issue the end"]
    script.feed(step(1, 0), step(1, 1), step(2, 0))
    assert script.feed(step(2, 1)) == ["commit 2 of 0,1"]
    assert script.feed(saved(2, 0), saved(2, 1)) == ["manifest 2 of 2"]
    assert script.feed(*exit_of(0), *exit_of(1)) == ["RECOVERING"]


def test_checkpoint_under_way_holds_up_no_step_and_one_that_fails_is_dropped() -> None:
    run_setting = replace(setting(), sequence=replace(WHOLE, evaluate_every=None, evaluate_at_end=False))
    script = Script(run_setting)
    script.make_ready()
    script.feed(step(1, 0), step(1, 1))
    assert script.feed(step(2, 0), step(2, 1))[-1] == "commit 2 of 0,1"
    assert "commit 3 of 0,1" in script.feed(step(3, 0), step(3, 1))
    full = Saved(1, 2, (), AgreedState(updates_applied=2), error="step-2: No space left on device")
    assert script.feed(saved(2, 0), full) == ["drop 2: step-2: No space left on device"]
    assert script.state.state is JobState.RUNNING


def test_last_checkpoint_that_fails_fails_the_job_with_what_to_do() -> None:
    script = Script(setting(total_steps=1))
    script.make_ready()
    script.feed(step(1, 0), step(1, 1), saved(1, 0))
    full = Saved(1, 1, (), AgreedState(updates_applied=1), error="step-1: No space left on device")
    assert script.feed(full)[-3:] == ["drop 1: step-1: No space left on device", "release 0 1", "release 1 1"]
    (fault,) = script.state.faults
    assert fault.error.message.startswith(
        "the checkpoint of step 1, the last one, could not be written: step-1: No space"
    )
