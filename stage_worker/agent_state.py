"""What an agent decides: pure, no clock, no process, no wire.

``advance(state, event, now)`` returns the next state and the commands that the
shell (``stage_worker.agent``) carries out. ``now`` is in monotonic seconds.
"""

import enum
import signal
from dataclasses import dataclass, replace

from stage_worker.agent_watch import Verdict, Watch
from stage_worker.record import Snapshot

STANDBY_DELAY_SECONDS = 1.0
"""How long a slot stays idle before it warms up an executor; where all ends with the job, none is wanted."""


class EndCause(enum.Enum):
    """Why an executor is gone."""

    EXITED = enum.auto()
    SIGNALLED = enum.auto()
    RELEASED = enum.auto()
    STUCK = enum.auto()
    SILENT = enum.auto()
    NOT_STARTED = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One worker's place in one attempt of a job, as the agent needs it."""

    job: str
    attempt: int
    worker: int
    dp_rank: int
    stages: tuple[int, ...]
    lease_seconds: float
    step_timeout_seconds: float
    assignment: str
    """The whole assignment as JSON, for the executor."""

    @property
    def log(self) -> str:
        """Log file of its executor, relative to the job's folder."""
        return f"logs/worker-{self.worker}.log"


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


@dataclass(frozen=True, slots=True)
class AgentState:
    """What the agent knows."""

    running: Running | None = None
    wants_standby: bool = True
    standby_at: float | None = 0.0
    """When a standby executor is to be started; None where there is one, or none is wanted now."""
    last_end: str = "no job has run here yet"
    """How the last executor ended, for a person who asks why the slot is not ready."""


# Events.
@dataclass(frozen=True, slots=True)
class Assigned:
    """The coordinator wants an executor."""

    work: Work


@dataclass(frozen=True, slots=True)
class Refused:
    """An assignment that must not or cannot be obeyed."""

    job: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The executor could not be started, or did not take its work."""

    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """The coordinator wants an executor gone."""

    job: str
    attempt: int
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Exited:
    """The executor process is gone; ``returncode`` is negative for a signal."""

    returncode: int
    stage: int | None = None
    """What it was computing for."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Nobody can use an executor here any more: the coordinator is lost, or the agent was told to stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; what the executor's record says, where there is an executor."""

    snapshot: Snapshot | None


Event = Assigned | Refused | StartFailed | Released | Exited | Abandoned | Ticked


# Commands.
@dataclass(frozen=True, slots=True)
class StartExecutor:
    """Start an executor, or wake the standby, hand it the work, and say that it has started."""

    work: Work


@dataclass(frozen=True, slots=True)
class KillExecutor:
    """Kill the executor's whole process group."""


@dataclass(frozen=True, slots=True)
class StartStandby:
    """Start an executor without work."""


@dataclass(frozen=True, slots=True)
class SayEnded:
    """Tell the coordinator that an executor is gone."""

    job: str
    attempt: int
    cause: EndCause
    message: str
    exit_code: int = 0
    signal: int = 0
    log: str = ""
    """Log file, relative to the job's folder; empty where it never started."""
    stage: int | None = None
    """Stage that it was computing for."""


Command = StartExecutor | KillExecutor | StartStandby | SayEnded
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
        case Abandoned(reason):
            decision = _kill(state, EndCause.RELEASED, reason)
        case Ticked(snapshot):
            decision = _tick(state, snapshot, now)
    return decision


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
    return state, ()


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
