"""One admitted job from its first assignment to its end: ``advance(state, event, now)``, and nothing else.

No clock, no socket, no disk: time comes in with every event, in seconds of any
steady clock, and what is to be done comes out as commands. Once the workers
are released, ``run_end`` decides how it ends.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from coordinator.agreement import disagreement
from coordinator.events import (
    AgentLost,
    CancelAsked,
    Connected,
    Disconnected,
    Ended,
    Event,
    Faulted,
    Item,
    ItemKind,
    Progressed,
    Ready,
    Reported,
    Saved,
    Started,
    StepResult,
    StopAsked,
    StoreOpened,
    Tick,
)
from coordinator.failure import Fault, FaultKind, unsaved
from coordinator.records import JobError, JobState
from coordinator.run_commands import (
    Assign,
    ChangeState,
    Command,
    CommitCheckpoint,
    CommitEvaluation,
    CommitStep,
    DropCheckpoint,
    Issue,
    SendRendezvous,
)
from coordinator.run_end import Advance, agent_lost, cancel, error_of, fail, finish_if_over, gone, stop, tick
from coordinator.run_state import REJOIN_SECONDS, STOP_SECONDS, Life, Member, Outstanding, RunSetting, RunState
from coordinator.start import Carried


def begin(setting: RunSetting, now: float, *, step: int = 0, notices: tuple[str, ...] = ()) -> Advance:
    """Take the slots of a run, of which ``step`` is the last one committed: every worker is assigned."""
    state = RunState(
        setting=setting,
        state=JobState.STARTING,
        members=tuple(Member() for _ in setting.places),
        started_at=now,
        progress_at=now,
        step=step,
    )
    hosts = ", ".join(dict.fromkeys(place.host for place in setting.places))
    after = f", to go on after step {setting.sequence.begins_after}" if setting.sequence.begins_after else ""
    reason = "; ".join((f"{len(setting.places)} workers load on {hosts}{after}", *notices))
    assignments = (Assign(place.worker) for place in setting.places)
    return state, (ChangeState(state=JobState.STARTING, reason=reason, step=step), *assignments)


def carry_on(setting: RunSetting, now: float, carried: Carried) -> Advance:
    """Go on with a run that another coordinator began: its workers, which may be ahead of the journal, come back.

    Everything behind the journal is issued again, with the numbers it had; workers drop what they know. The other
    coordinator can have issued ``credit`` steps behind those it had yet to write down, of which there were as many.
    """
    state = RunState(
        setting=setting,
        state=JobState.RUNNING,
        members=tuple(Member() for _ in setting.places),
        started_at=now,
        progress_at=now,
        step=carried.step,
        rejoin_by=now + REJOIN_SECONDS,
    )
    begun = carried.step > setting.sequence.begins_after
    if begun:
        state = replace(state, last_issued=Item(ItemKind.TRAIN, carried.step, carried.step))
    issues: list[Issue] = []
    while (item := setting.sequence.after(state.last_issued)) is not None:
        is_saved = item.kind is ItemKind.SAVE and carried.is_saved and item.after == carried.step
        is_known = is_saved or (item.kind is ItemKind.EVALUATE and (item.after, item.split) in carried.evaluations)
        if not is_known and not _may_issue(state, item, credit=2 * setting.credit):
            break
        state = state.with_issued(item, is_known=is_known)
        issues.append(Issue(item))
    return state, tuple(issues)


def advance(state: RunState, event: Event, now: float) -> Advance:  # noqa: PLR0911  # one for each kind of event
    """Return the state after ``event`` and what is to be done, in order. After the end nothing happens."""
    if state.is_over:
        return state, ()
    match event:
        case Started(worker, pid, log):
            # An agent's word and its executor's own come by two streams: the executor may be ready by now.
            has_come = state.members[worker].life is not Life.ASSIGNED
            life = state.members[worker].life if has_come else Life.LOADING
            return state.with_member(worker, life=life, pid=pid, log=log), ()
        case Connected() | Disconnected() | StoreOpened() | Ready():
            return _joined(state, event, now)
        case Reported(kind, step, result):
            return _reported(state, kind, step, result, now)
        case Saved():
            return _saved(state, event, now)
        case Progressed(seconds_ago=seconds_ago):
            return replace(state, progress_at=max(state.progress_at, now - seconds_ago)), ()
        case Faulted(fault):
            return fail(state, fault, now)
        case Ended(worker):
            state = state.with_member(worker, ended=event, ended_at=now)
            return (state, ()) if state.members[worker].connected else _settled(*gone(state, worker, now), now)
        case AgentLost(worker, reason):
            return agent_lost(state, worker, reason, now)
        case CancelAsked(reason, grace_seconds):
            return cancel(state, reason, grace_seconds, now)
        case StopAsked(reason, grace_seconds):
            return stop(state, reason, grace_seconds, now)
        case Tick():
            return tick(state, now)


def _joined(state: RunState, event: Connected | Disconnected | StoreOpened | Ready, now: float) -> Advance:
    match event:
        case Connected(worker, pid):
            # It may have come before, by a stream that broke.
            life = state.members[worker].life
            life = Life.LOADING if life is Life.ASSIGNED else life
            state = state.with_member(worker, life=life, pid=pid, connected=True)
            return state, () if state.rendezvous is None else (SendRendezvous((worker,), state.rendezvous),)
        case Disconnected(worker):
            state = state.with_member(worker, connected=False)
            ended = state.members[worker].ended is not None
            return _settled(*gone(state, worker, now), now) if ended else (state, ())
        case StoreOpened(_, address) if address == state.rendezvous:
            return state, ()  # said again, by a new stream
        case StoreOpened(_, address):
            workers = tuple(worker for worker, member in enumerate(state.members) if member.connected)
            return replace(state, rendezvous=address), (SendRendezvous(workers, address),)
        case Ready(worker, parameters, peak_bytes):
            state = state.with_member(worker, life=Life.READY, parameters=parameters, peak_bytes=peak_bytes)
    if all(member.life is Life.READY for member in state.members):
        state = replace(state, rejoin_by=None)
    if state.state is not JobState.STARTING or any(member.life is not Life.READY for member in state.members):
        return state, ()
    state = replace(state, state=JobState.RUNNING, progress_at=now)
    change = ChangeState(state=JobState.RUNNING, reason=f"all {len(state.members)} workers are ready", step=state.step)
    return _settled(state, (change,), now)


def _reported(state: RunState, kind: ItemKind, step: int, result: StepResult, now: float) -> Advance:
    if state.releasing:
        return state, ()
    for index, entry in enumerate(state.outstanding):
        if (entry.item.kind, entry.item.step) == (kind, step) and result.worker in entry.waiting:
            answered = replace(entry, waiting=entry.waiting - {result.worker}, results=(*entry.results, result))
            if kind is ItemKind.TRAIN and not answered.waiting:
                differing = disagreement(answered.results)
                if differing is not None:
                    return _disagreed(state, step, *differing, now)
            return _answered(state, index, answered, now)
    return _unasked(state, result.worker, f"{kind.name.lower()} step {step}", now)


def _saved(state: RunState, saved: Saved, now: float) -> Advance:
    if state.releasing:
        return state, ()
    worker, step = saved.worker, saved.step
    for index, entry in enumerate(state.outstanding):
        if entry.item.kind is ItemKind.SAVE and entry.item.after == step and worker in entry.waiting:
            if entry.agreed is not None and entry.agreed != saved.agreed:
                message = f"the workers disagree on the state after step {step}: {entry.agreed} and {saved.agreed}"
                error = JobError(type="protocol", message=message, step=step)
                return fail(state, Fault(kind=FaultKind.COORDINATOR, error=error), now)
            shards = (*entry.shards, *saved.shards)
            answered = replace(
                entry,
                waiting=entry.waiting - {worker},
                shards=shards,
                agreed=saved.agreed,
                error=entry.error or saved.error,
                seconds=max(entry.seconds, saved.seconds),
            )
            return _answered(state, index, answered, now)
    return _unasked(state, worker, f"a checkpoint of step {step}", now)


def _answered(state: RunState, index: int, entry: Outstanding, now: float) -> Advance:
    outstanding = (*state.outstanding[:index], entry, *state.outstanding[index + 1 :])
    return _settled(replace(state, outstanding=outstanding, progress_at=now), (), now)


def _disagreed(state: RunState, step: int, name: str, told: Mapping[object, frozenset[int]], now: float) -> Advance:
    """Workers differ in what they must all have computed alike: their weights do too, so the step is not committed."""
    values = "; ".join(f"{json.dumps(value)} on {state.names(workers)}" for value, workers in told.items())
    message = f"the workers disagree on {name} of step {step}: {values}"
    error = JobError(type="protocol", message=message, step=step)
    return fail(state, Fault(kind=FaultKind.COORDINATOR, error=error), now)


def _unasked(state: RunState, worker: int, what: str, now: float) -> Advance:
    """A worker answered what was not asked: its numbers cannot be trusted."""
    message = f"{state.setting.places[worker]} reported {what}, which was not asked of it"
    log = state.members[worker].log
    error = error_of(state, "protocol", message, worker=worker, log=log)
    return fail(state, Fault(kind=FaultKind.COORDINATOR, error=error), now)


def _settled(state: RunState, commands: tuple[Command, ...], now: float) -> Advance:
    """Commit what is complete, in order, and issue what credit allows.

    New work goes out before the journal is written; only an evaluation is closed first, before rows of the
    next one can arrive.
    """
    if state.releasing or state.is_over:
        return state, commands
    commits: list[Command] = []
    while (entry := state.complete) is not None:
        if entry.error and entry.item.after == state.setting.sequence.total_steps:
            return _unsaved(state, entry, (*commands, *commits), now)
        state, commit = _committed(state, entry)
        commits.extend(commit)
    state, issues = _issued(state)
    if state.all_committed and state.stop_deadline is None:
        state = replace(state, stop_deadline=now + STOP_SECONDS)
    state, ending = finish_if_over(state)
    closes_evaluation = any(isinstance(commit, CommitEvaluation) for commit in commits)
    ordered = (*commits, *issues) if closes_evaluation else (*issues, *commits)
    return state, (*commands, *ordered, *ending)


def _committed(state: RunState, entry: Outstanding) -> Advance:
    state = replace(state, outstanding=tuple(each for each in state.outstanding if each is not entry))
    match entry.item.kind:
        case ItemKind.TRAIN:
            results = tuple(sorted(entry.results, key=lambda result: result.worker))
            return replace(state, step=max(state.step, entry.item.step)), (CommitStep(entry.item.step, results),)
        case ItemKind.SAVE if entry.error:
            return state, (DropCheckpoint(entry.item.after, entry.error),)
        case ItemKind.SAVE:
            shards = tuple(sorted(entry.shards, key=lambda shard: (shard.kind, shard.stage)))
            assert entry.agreed is not None, "a worker at least has saved"
            return state, (CommitCheckpoint(entry.item.after, shards, entry.agreed, entry.seconds),)
        case _ if state.setting.sequence.ends_evaluation(entry.item):
            return state, (CommitEvaluation(entry.item.after, entry.item.split),)
    return state, ()


def _unsaved(state: RunState, entry: Outstanding, commands: tuple[Command, ...], now: float) -> Advance:
    """The state after the last step cannot be written: what was learnt since the checkpoint before it is not kept."""
    step = entry.item.after
    fault = Fault(kind=FaultKind.EXCEPTION, error=unsaved(step, entry.error))
    state, ending = fail(state, fault, now)
    return state, (*commands, DropCheckpoint(step, entry.error), *ending)


def _issued(state: RunState) -> tuple[RunState, tuple[Issue, ...]]:
    issues: list[Issue] = []
    while state.state is JobState.RUNNING:
        item = state.setting.sequence.after(state.last_issued)
        if item is None:
            break
        if not _may_issue(state, item, credit=state.setting.credit):
            break
        state = state.with_issued(item)
        issues.append(Issue(item))
    return state, tuple(issues)


def _may_issue(state: RunState, item: Item, *, credit: int) -> bool:
    takes_credit = item.kind in (ItemKind.TRAIN, ItemKind.EVALUATE)
    if takes_credit and state.steps_in_flight >= credit:
        return False
    return not (item.kind is ItemKind.EVALUATE and item.step == 1 and state.evaluating)
