"""How a run ends: faults, lost agents, cancelling, limits of time, and which of them is the reason."""

from dataclasses import replace

from coordinator.events import Ended, EndKind, Item, ItemKind
from coordinator.failure import Fault, FaultKind, root_cause, signal_name
from coordinator.records import JobError, JobState
from coordinator.run_commands import ChangeState, Command, Issue, Release
from coordinator.run_state import (
    END_SECONDS,
    HANG_UP_SECONDS,
    RELEASE_GRACE_SECONDS,
    START_SECONDS,
    Life,
    RunState,
)

Advance = tuple[RunState, tuple[Command, ...]]


def fail(state: RunState, fault: Fault, now: float) -> Advance:
    """Note a fault; the first one releases all workers."""
    if fault.error.worker is not None and fault.error.step is None:
        fault = replace(fault, error=replace(fault.error, step=_step_of(state, fault.error.worker)))
    state = replace(state, faults=(*state.faults, fault))
    if fault.kind in (FaultKind.EXCEPTION, FaultKind.TOLD, FaultKind.PEER) and fault.error.worker is not None:
        state = state.with_member(fault.error.worker, told_fault=True)
    return _release(state, RELEASE_GRACE_SECONDS, now)


def gone(state: RunState, worker: int, now: float) -> Advance:
    """A worker's process has ended and all it said was read: well, or by a fault."""
    member = state.members[worker]
    state = state.with_member(worker, life=Life.GONE, connected=False)
    awaited = any(worker in entry.waiting for entry in state.outstanding if entry.item.kind is not ItemKind.STOP)
    if member.ended is None or member.told_fault or (state.stop_issued and not awaited and not state.releasing):
        return finish_if_over(state)
    fault = _end_fault(state, member.ended)
    return finish_if_over(state) if fault is None else fail(state, fault, now)


def agent_lost(state: RunState, worker: int, reason: str, now: float) -> Advance:
    """A worker's agent is gone; nothing more will be heard of the worker either, nor need be once all is committed."""
    if state.members[worker].life is Life.GONE:
        return state, ()
    log = state.members[worker].log
    state = state.with_member(worker, life=Life.GONE, connected=False)
    if state.all_committed:
        return finish_if_over(state)
    message = f"the agent of {state.setting.places[worker]} was lost: {reason}"
    error = error_of(state, "lost", message, worker=worker, log=log)
    return fail(state, Fault(kind=FaultKind.LOST, error=error), now)


def cancel(state: RunState, reason: str, grace_seconds: float, now: float) -> Advance:
    """Stop issuing and end at the next boundary, or at once where no step was issued yet.

    Nothing happens where all work is committed already or a fault is ending the run.
    """
    if state.releasing or state.all_committed:
        return state, ()
    deadline = now + grace_seconds
    if state.cancel_reason is not None:
        return replace(state, stop_deadline=min(deadline, state.stop_deadline or deadline)), ()
    loading = state.state is JobState.STARTING
    state = replace(state, state=JobState.CANCELLING, cancel_reason=reason, stop_deadline=deadline)
    change = ChangeState(state=JobState.CANCELLING, reason=reason, step=state.step)
    if loading:
        state, commands = _release(state, 0.0, now)
        return state, (change, *commands)
    if state.stop_issued:
        return state, (change,)
    after = 0 if state.last_issued is None else state.last_issued.after
    stop = Item(ItemKind.STOP, after, after)
    return state.with_issued(stop), (change, Issue(stop))


def stop(state: RunState, reason: str, grace_seconds: float, now: float) -> Advance:
    """Save the state at the next boundary and end there, or at once where no step was issued; the job goes on later.

    Nothing happens where the run ends anyway.
    """
    if state.releasing or state.all_committed or state.cancel_reason is not None or state.stop_reason is not None:
        return state, ()
    state = replace(state, stop_reason=reason, stop_deadline=now + grace_seconds)
    if state.state is JobState.STARTING or state.rejoin_by is not None:
        return _release(state, 0.0, now)
    if state.stop_issued:
        return state, ()
    last, issues = state.last_issued, []
    after = state.setting.sequence.begins_after if last is None else last.after
    if last is not None and last.kind is ItemKind.TRAIN:
        issues.append(Item(ItemKind.SAVE, after, after))
    issues.append(Item(ItemKind.STOP, after, after))
    for item in issues:
        state = state.with_issued(item)
    return state, tuple(Issue(item) for item in issues)


def tick(state: RunState, now: float) -> Advance:  # noqa: PLR0911  # one for each limit
    """Hold every limit of time."""
    silent = [w for w, m in enumerate(state.members) if m.life is not Life.GONE and m.ended is not None]
    for worker in silent:
        if now >= state.members[worker].ended_at + HANG_UP_SECONDS:
            return gone(state, worker, now)
    if state.give_up_at is not None:
        return _finish(state) if now >= state.give_up_at else (state, ())
    if state.stop_deadline is not None and now >= state.stop_deadline:
        return _release(state, 0.0, now)
    if state.rejoin_by is not None and now >= state.rejoin_by:
        missing = [worker for worker, member in enumerate(state.members) if member.life is not Life.READY]
        return stop(state, f"not back after the coordinator was restarted: {state.names(missing)}", 0.0, now)
    if state.state is JobState.STARTING and now - state.started_at > START_SECONDS:
        late = [worker for worker, member in enumerate(state.members) if member.life is not Life.READY]
        message = f"not ready within {START_SECONDS:.0f} s: {state.names(late)}; see the logs"
        return fail(state, _limit_fault(state, message, late[0]), now)
    if state.outstanding and now - state.progress_at > state.setting.progress_seconds and not state.all_committed:
        head = state.outstanding[0]
        awaited = state.names(head.waiting) or "nobody"
        message = f"no progress for {now - state.progress_at:.0f} s on {head.item}; waited for {awaited}"
        return fail(state, _limit_fault(state, message, min(head.waiting, default=0)), now)
    return state, ()


def finish_if_over(state: RunState) -> Advance:
    """End the run once no executor is left."""
    return _finish(state) if state.all_gone else (state, ())


def error_of(state: RunState, kind: str, message: str, *, worker: int, log: str, stage: int | None = None) -> JobError:
    """Return an error of a worker, in the step that it was to do next; at its first stage where none is named."""
    if stage is None:
        stage = state.setting.places[worker].stages[0]
    return JobError(type=kind, message=message, worker=worker, stage=stage, step=_step_of(state, worker), log=log)


def _step_of(state: RunState, worker: int) -> int | None:
    """Return the training step that a worker is in, or whose weights it saves or evaluates; None before the first."""
    return next((entry.item.after for entry in state.outstanding if worker in entry.waiting), None)


def _release(state: RunState, grace_seconds: float, now: float) -> Advance:
    """Release all workers, once, and wait for their end; nothing is committed or issued any more."""
    if state.releasing:
        return finish_if_over(state)
    state = replace(state, give_up_at=now + grace_seconds + END_SECONDS)
    releases = tuple(Release(w, grace_seconds) for w, m in enumerate(state.members) if m.life is not Life.GONE)
    state, ending = finish_if_over(state)
    return state, (*releases, *ending)


def _finish(state: RunState) -> Advance:
    error = None
    left = state.names([worker for worker, member in enumerate(state.members) if member.life is not Life.GONE])
    if state.cancel_reason is not None:
        final, reason = JobState.CANCELLED, f"{state.cancel_reason}; step {state.step} was the last one"
    elif state.stop_reason is not None and not any(fault.kind <= FaultKind.TOLD for fault in state.faults):
        final, reason = (
            JobState.RECOVERING,
            f"{state.stop_reason}; step {state.step} was the last one, it goes on later",
        )
    elif state.faults:
        error = root_cause(state.faults)
        final, reason = JobState.FAILED, _reason(error)
    else:
        trained = state.setting.sequence.total_steps > 0
        final, reason = JobState.SUCCEEDED, f"all {state.step} steps are done" if trained else "all rows are predicted"
    if left:
        reason += f"; not seen to end: {left}"
    change = ChangeState(state=final, reason=reason, step=state.step, error=error)
    return replace(state, state=final), (change,)


def _reason(error: JobError) -> str:
    if error.worker is None:
        return error.message
    return f"{error.message}; see {error.log}" if error.log else error.message


def _end_fault(state: RunState, ended: Ended) -> Fault | None:
    """What an executor's end means where it was not asked to end; None where it was."""
    place = state.setting.places[ended.worker]
    log = state.members[ended.worker].log or f"logs/worker-{ended.worker}.log"
    match ended.kind:
        case EndKind.RELEASED:
            if state.releasing:
                return None
            kind, message = "exit", f"{place} was ended by its agent unasked: {ended.message}"
        case EndKind.EXITED:
            if state.releasing and ended.exit_code == 0:
                return None
            kind, message = "exit", f"{place} exited with code {ended.exit_code}, {_last_words(ended.log_tail)}"
        case EndKind.SIGNALLED:
            kind, message = "signal", f"{place} was ended by {signal_name(ended.signal)}"
        case EndKind.STUCK:
            limit = state.setting.step_timeout_seconds
            kind, message = "stuck", f"{place} was stuck: one command took longer than {limit:g} s"
        case EndKind.SILENT:
            kind, message = "silent", f"{place} gave no sign of life for {state.setting.lease_seconds:g} s"
        case EndKind.NOT_STARTED:
            kind, message = "exit", f"{place} could not be started: {ended.message}"
    error = error_of(state, kind, message, worker=ended.worker, log=log, stage=ended.stage)
    return Fault(kind=FaultKind.KILLED, error=error)


def _last_words(log_tail: str) -> str:
    lines = log_tail.strip().splitlines()
    # Until it learns its job an executor has no log of its own.
    return f"last words: {lines[-1]}" if lines else "before it wrote to its own log; the log of its agent says why"


def _limit_fault(state: RunState, message: str, worker: int) -> Fault:
    log = state.members[worker].log
    return Fault(kind=FaultKind.COORDINATOR, error=error_of(state, "timeout", message, worker=worker, log=log))
