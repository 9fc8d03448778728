"""What an agent decides: pure, no clock, no process, no wire.

``advance(state, event, now)`` returns the next state and the commands that the
shell (``stage_worker.agent``) carries out. ``now`` is in monotonic seconds.
"""

import signal
from dataclasses import dataclass, replace

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
from stage_worker.agent_watch import Verdict, Watch
from stage_worker.record import Snapshot

STANDBY_DELAY_SECONDS = 1.0
"""How long a slot stays idle before it warms up an executor; where all ends with the job, none is wanted."""


@dataclass(frozen=True, slots=True)
class Running:
    """An executor that has its work."""

    work: Work
    watch: Watch
    release_at: float | None = None
    """When it is killed because the coordinator does not want it any more."""
    killed: EndCause | None = None
    """Why the agent has killed it; it may not have died yet."""
    reason: str = ""
    """Why, for a person."""
    orphan_at: float | None = None
    """When it is killed because the coordinator was lost; None while there is one."""
    orphan_reason: str = ""
    """How it was lost."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """What the agent knows."""

    running: Running | None = None
    wants_standby: bool = True
    orphan_seconds: float = 0.0
    """How long an executor may go on whose coordinator was lost."""
    standby_at: float | None = 0.0
    """When a standby executor is to be started; None where there is one, or none is wanted now."""
    last_end: str = "no job has run here yet"
    """How the last executor ended, for a person who asks why the slot is not ready."""
    last_said: SayEnded | None = None
    """The last end that was told; the coordinator may not have heard it."""


Decision = tuple[AgentState, tuple[Command, ...]]


def advance(state: AgentState, event: Event, now: float) -> Decision:
    """Return the state after ``event`` and what is to be done about it."""
    match event:
        case Assigned(work):
            decision = _assign(state, work)
        case Refused(job, attempt, reason):
            decision = state, (SayEnded(job, attempt, EndCause.NOT_STARTED, reason),)
        case StartFailed(reason):
            decision = _start_failed(state, reason, now)
        case Released(job, attempt, grace_seconds):
            decision = _release(state, job, attempt, now + grace_seconds, now)
        case Exited(returncode, stage):
            decision = _end(state, returncode, stage, now)
        case CoordinatorLost(reason):
            decision = _orphaned(state, reason, now), ()
        case CoordinatorFound():
            decision = _adopted(state), ()
        case Abandoned(reason):
            decision = _kill(state, EndCause.RELEASED, reason)
        case Ticked(snapshot):
            decision = _tick(state, snapshot, now)
    state, commands = decision
    said = next((command for command in commands if isinstance(command, SayEnded)), state.last_said)
    return replace(state, last_said=said), commands


def readiness(state: AgentState, snapshot: Snapshot | None) -> tuple[bool, str]:
    """Return whether the slot has its stages loaded and its job is well, and why or why not."""
    running = state.running
    if running is None:
        return False, f"no executor is at work: {state.last_end}"
    of_job = f"job {running.work.job} attempt {running.work.attempt}"
    if running.killed is not None:
        return False, f"the executor of {of_job} is being ended: {running.reason}"
    if running.release_at is not None:
        return False, f"the executor of {of_job} was released and is about to end"
    numbers = ", ".join(str(stage) for stage in running.work.stages)
    stages, are = (f"stage {numbers}", "is") if len(running.work.stages) == 1 else (f"stages {numbers}", "are")
    if snapshot is None or not snapshot.loaded:
        return False, f"the executor of {of_job} is loading {stages}"
    return True, f"{stages} of {of_job} {are} loaded"


def _assign(state: AgentState, work: Work) -> Decision:
    if state.running is not None:
        busy = state.running.work
        if (busy.job, busy.attempt, busy.worker) == (work.job, work.attempt, work.worker):
            return state, ()  # it comes again where the coordinator cannot know whether it came
        reason = f"the slot is busy with job {busy.job} attempt {busy.attempt}"
        return state, (SayEnded(work.job, work.attempt, EndCause.NOT_STARTED, reason),)
    watch = Watch(lease_seconds=work.lease_seconds, step_timeout_seconds=work.step_timeout_seconds)
    return replace(state, running=Running(work, watch), standby_at=None), (StartExecutor(work),)


def _start_failed(state: AgentState, reason: str, now: float) -> Decision:
    assert state.running is not None  # it answers StartExecutor
    work = state.running.work
    said = SayEnded(work.job, work.attempt, EndCause.NOT_STARTED, reason)
    return _free(state, reason, now), (said,)


def _release(state: AgentState, job: str, attempt: int, deadline: float, now: float) -> Decision:
    running = state.running
    if running is None or (running.work.job, running.work.attempt) != (job, attempt):
        return state, ()  # it has ended already, which the coordinator is about to read
    if running.release_at is not None:
        deadline = min(deadline, running.release_at)
    state = replace(state, running=replace(running, release_at=deadline))
    return _kill(state, EndCause.RELEASED, "the coordinator released it") if deadline <= now else (state, ())


def _orphaned(state: AgentState, reason: str, now: float) -> AgentState:
    running = state.running
    if running is None or running.orphan_at is not None:
        return state
    return replace(state, running=replace(running, orphan_at=now + state.orphan_seconds, orphan_reason=reason))


def _adopted(state: AgentState) -> AgentState:
    if state.running is None:
        return state
    return replace(state, running=replace(state.running, orphan_at=None))


def _kill(state: AgentState, cause: EndCause, reason: str) -> Decision:
    running = state.running
    if running is None or running.killed is not None:
        return state, ()
    return replace(state, running=replace(running, killed=cause, reason=reason)), (KillExecutor(),)


def _end(state: AgentState, returncode: int, stage: int | None, now: float) -> Decision:
    assert state.running is not None  # only an executor with work is reported
    running = state.running
    if returncode >= 0:
        cause, message = EndCause.EXITED, f"the executor exited with code {returncode}"
    elif running.killed is not None and -returncode == signal.SIGKILL:
        cause, message = running.killed, f"the agent killed the executor: {running.reason}"
    else:
        cause, message = EndCause.SIGNALLED, f"the executor was ended by {_signal_name(-returncode)}"
    said = SayEnded(
        running.work.job,
        running.work.attempt,
        cause,
        message,
        exit_code=max(returncode, 0),
        signal=max(-returncode, 0),
        log=running.work.log,
        stage=stage,
    )
    last_end = f"job {running.work.job} attempt {running.work.attempt}: {message}"
    return _free(state, last_end, now), (said,)


def _free(state: AgentState, last_end: str, now: float) -> AgentState:
    return replace(state, running=None, standby_at=now + STANDBY_DELAY_SECONDS, last_end=last_end)


def _tick(state: AgentState, snapshot: Snapshot | None, now: float) -> Decision:
    if state.wants_standby and state.standby_at is not None and state.standby_at <= now:
        return replace(state, standby_at=None), (StartStandby(),)
    running = state.running
    if running is None or snapshot is None:
        return state, ()
    watch, finding = running.watch.observe(snapshot, now)
    state = replace(state, running=replace(running, watch=watch))
    if finding is not None:
        cause = EndCause.SILENT if finding.verdict is Verdict.SILENT else EndCause.STUCK
        return _kill(state, cause, finding.reason)
    if running.release_at is not None and running.release_at <= now:
        return _kill(state, EndCause.RELEASED, "the coordinator released it and it had not ended in time")
    if running.orphan_at is not None and running.orphan_at <= now:
        reason = f"no coordinator came back within {state.orphan_seconds:g} s ({running.orphan_reason})"
        return _kill(state, EndCause.RELEASED, reason)
    return state, ()


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
