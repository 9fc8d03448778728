"""Whatever happens to a run, in whatever order: what must hold of its commands."""

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.events import (
    AgentLost,
    CancelAsked,
    Connected,
    Disconnected,
    Ended,
    EndKind,
    Event,
    Faulted,
    ItemKind,
    Progressed,
    Ready,
    Reported,
    Saved,
    Started,
    StepResult,
    StoreOpened,
    Tick,
)
from coordinator.failure import Fault, FaultKind
from coordinator.records import JobError, JobState
from coordinator.run import advance, begin
from coordinator.run_commands import Assign, ChangeState, Command, CommitStep, Issue, Release
from coordinator.run_state import Place, RunSetting, RunState
from coordinator.sequence import Sequence
from coordinator.start import AgreedState

NUM_WORKERS = 2
CREDIT = 2
WORKERS = st.integers(0, NUM_WORKERS - 1)
STEPS = st.integers(1, 5)


def arbitrary_event() -> st.SearchStrategy[Event]:
    fault = st.builds(
        Fault,
        kind=st.sampled_from(FaultKind),
        error=st.builds(JobError, type=st.just("X"), message=st.just("x"), worker=WORKERS),
    )
    return st.one_of(
        st.builds(Started, WORKERS, st.just(7), st.just("logs/x.log")),
        st.builds(Connected, WORKERS, st.just(7)),
        st.builds(Disconnected, WORKERS),
        st.builds(StoreOpened, st.just(0), st.just("h:1")),
        st.builds(Progressed, WORKERS),
        st.builds(
            Reported,
            st.sampled_from([ItemKind.TRAIN, ItemKind.EVALUATE]),
            STEPS,
            st.builds(StepResult, worker=WORKERS),
        ),
        st.builds(Saved, WORKERS, STEPS, st.just(())),
        st.builds(Faulted, fault),
        st.builds(Ended, WORKERS, st.sampled_from(EndKind)),
        st.builds(AgentLost, WORKERS, st.just("silence")),
        st.builds(CancelAsked, st.just("asked"), st.just(1.0)),
        st.just(Tick()),
    )


def helpful_event(state: RunState, choice: int) -> Event:
    """Return an event that a healthy worker would cause next, so that random scripts get somewhere."""
    if state.state is JobState.STARTING:
        return Ready(choice % NUM_WORKERS, 1, 1)
    for entry in state.outstanding:
        for worker in sorted(entry.waiting):
            match entry.item.kind:
                case ItemKind.TRAIN | ItemKind.EVALUATE:
                    return Reported(entry.item.kind, entry.item.step, StepResult(worker=worker))
                case ItemKind.SAVE:
                    return Saved(worker, entry.item.after, (), AgreedState(updates_applied=entry.item.after))
                case ItemKind.STOP:
                    return Ended(choice % NUM_WORKERS, EndKind.EXITED)
    return Tick()


MOMENTS = st.tuples(st.sampled_from([0.0, 0.1, 1.0, 20.0]), st.integers(0, 39), arbitrary_event())
"""Seconds that pass, a number, and what happens where the number is 0: else a healthy worker does its next thing."""


@settings(max_examples=300, deadline=None)
@given(st.lists(MOMENTS, min_size=25, max_size=60))
def test_run_any_events_keeps_its_promises(moments: list[tuple[float, int, Event]]) -> None:
    places = tuple(Place(worker=w, dp_rank=0, stages=(w,), agent=f"a{w}", host="h") for w in range(NUM_WORKERS))
    sequence = Sequence(
        total_steps=4, save_every=2, evaluate_every=3, evaluate_at_end=True, evaluated=(("validation", 2),)
    )
    state, commands = begin(
        RunSetting(places=places, sequence=sequence, credit=CREDIT, step_timeout_seconds=5, lease_seconds=2), 0.0
    )
    log: list[Command] = list(commands)
    ended: set[int] = set()
    now = 0.0
    for seconds, number, arbitrary in moments:
        now += seconds
        event = helpful_event(state, number) if number else arbitrary
        if isinstance(event, Ended | AgentLost):
            ended.add(event.worker)
        state, commands = advance(state, event, now)
        log.extend(commands)
        assert state.steps_in_flight <= CREDIT
    check(state, log, ended)


def check(state: RunState, log: list[Command], ended: set[int]) -> None:
    committed = [command.step for command in log if isinstance(command, CommitStep)]
    assert committed == list(range(1, len(committed) + 1))
    assert state.step == len(committed)
    issued = [command.item for command in log if isinstance(command, Issue)]
    assert len(set(issued)) == len(issued)
    trained = [item.step for item in issued if item.kind is ItemKind.TRAIN]
    assert trained == list(range(1, len(trained) + 1))
    assert [item.kind for item in issued].count(ItemKind.STOP) <= 1
    assert sum(isinstance(command, Assign) for command in log) == NUM_WORKERS

    finals = [n for n, command in enumerate(log) if isinstance(command, ChangeState) and command.state.is_final]
    assert bool(finals) == state.state.is_final
    if finals:
        assert finals == [len(log) - 1]
        released = {command.worker for command in log if isinstance(command, Release)}
        assert released | ended == set(range(NUM_WORKERS))
        final = log[-1]
        assert isinstance(final, ChangeState)
        assert final.reason
        assert (final.error is not None) == (final.state is JobState.FAILED)
        if final.state is JobState.SUCCEEDED:
            assert len(committed) == state.setting.sequence.total_steps
