"""What agents and executors say, and to whom it goes."""

import structlog
from takt.rpc.errors import TaktError
from takt.v1 import workers_pb2 as pb

from coordinator.agents import LEASE_SECONDS, Agents, Outbox
from coordinator.decode import ended_of
from coordinator.events import AgentLost, Ended, EndKind, Progressed, Started, StopAsked
from coordinator.membership import SlotState
from coordinator.queue import Queue
from coordinator.runner import Runner
from coordinator.runs import Runs

STOPPING_SECONDS = 20.0
"""What a run gets to save its state and end when an agent of its is told to stop; the agent waits a little longer."""

_log = structlog.get_logger()


class StaleAttemptError(TaktError):
    """An executor of a run that is over, or never was."""


class NotYetError(TaktError):
    """Where somebody belongs is not known yet; it is in a moment."""


class Attendance:
    """Only for the thread of the event loop."""

    def __init__(self, *, agents: Agents, runs: Runs, queue: Queue) -> None:
        self._agents = agents
        self._runs = runs
        self._queue = queue

    def joined(self, hello: pb.AgentHello) -> Outbox:
        """An agent offers its slot, for the first time or after its stream broke; return what it is to be sent.

        Raises:
            SlotTakenError: another agent that lives offers the slot.
            NotYetError: the run that it works for, or did, is about to begin.
        """
        work = hello.work if hello.HasField("work") else None
        for job in (hello.work.job, hello.last_end.job):
            self._wait_for_run(job)
        self._take_slot_from_absent(hello)
        agent, slot = hello.agent, self._agents.membership.slot(hello.agent)
        runner = self._runs.on(agent)
        worker = None if runner is None else runner.worker_on(agent)
        if runner is not None and worker is not None and (work is None or _is_of(work, runner, worker)):
            outbox = self._agents.join(hello, job=runner.job, worker=worker)
            self._go_on(runner, worker, hello)
        elif work is not None:
            outbox = self._agents.join(hello, job=work.job)
            if runner is not None and worker is not None:
                runner.post(AgentLost(worker, f"it works for attempt {work.attempt} of job {work.job}"))
            release = pb.Release(job=work.job, attempt=work.attempt, grace_seconds=0)
            self._agents.send(agent, pb.AttendResponse(release=release))
        elif slot is not None and slot.state is SlotState.BUSY and self._queue.holds_slots(slot.job):
            outbox = self._agents.join(hello, job=slot.job, worker=slot.worker)
        else:
            self._agents.work_ended(agent)
            outbox = self._agents.join(hello)
        _log.info(
            "slot joined",
            host=hello.host,
            slot=hello.slot,
            device=hello.device,
            pid=hello.pid,
            works_for=hello.work.job or None,
        )
        self._queue.look()
        return outbox

    def said(self, agent: str, message: pb.AttendRequest) -> None:
        """An agent said something."""
        self._agents.heard(agent)
        match message.WhichOneof("message"):
            case "heartbeat" if not message.heartbeat.job:
                self._free_unless_held(agent)
            case "heartbeat" if message.heartbeat.HasField("idle_seconds"):
                self._note_progress(agent, message.heartbeat)
            case "started":
                started = message.started
                self._agents.work_began(agent)
                runner, worker = self._place(agent, started.job, started.attempt)
                if runner is not None and worker is not None:
                    runner.post(Started(worker, started.pid, started.log))
            case "ended":
                self._agents.work_ended(agent)
                runner, worker = self._place(agent, message.ended.job, message.ended.attempt)
                if runner is not None and worker is not None:
                    runner.post(ended_of(worker, message.ended))
                self._free_unless_held(agent)
            case "inspected":
                self._agents.inspected(message.inspected)
            case "stopping":
                self._stop_run_on(agent)

    def attends(self, agent: str, outbox: Outbox) -> bool:
        """Whether this is the present stream of an agent, not one that a later stream replaced."""
        return self._agents.attends(agent, outbox)

    def gone(self, agent: str, outbox: Outbox, reason: str, *, lost: bool) -> None:
        """An agent's stream has ended; that of an agent which has dialled anew since is of no interest.

        One that breaks while its slot is at work has the lease to come back with its executor.
        """
        if not self._agents.attends(agent, outbox):
            return
        slot = self._agents.membership.slot(agent)
        if lost and slot is not None and slot.state is SlotState.BUSY:
            self._agents.hang_up(agent)
            _log.warning("slot at work is out of reach", agent=agent, job=slot.job, reason=reason)
        else:
            self._leave(agent, reason, lost=lost)

    def expire(self) -> None:
        """Take the agents off whose lease has run out."""
        for agent in self._agents.lapsed():
            silent = "it was not heard of any more"
            broken = f"its stream broke and it was not back within {LEASE_SECONDS:g} s"
            self._leave(agent, silent if self._agents.is_attending(agent) else broken, lost=True)

    def run_of(self, hello: pb.ExecutorHello) -> Runner:
        """Return the run that an executor belongs to.

        Raises:
            StaleAttemptError: there is none, or it is another attempt.
            NotYetError: it is about to begin.
        """
        self._wait_for_run(hello.job)
        runner = self._runs.get(hello.job)
        if runner is None or runner.attempt != hello.attempt:
            raise StaleAttemptError(f"attempt {hello.attempt} of job {hello.job} is over; this executor is not needed")
        return runner

    def _leave(self, agent: str, reason: str, *, lost: bool) -> None:
        self._tell_lost(agent, reason)
        self._agents.leave(agent, lost=lost)
        _log.info("slot left", agent=agent, reason=reason, lost=lost)
        self._queue.look()

    def _tell_lost(self, agent: str, reason: str) -> None:
        runner = self._runs.on(agent)
        worker = None if runner is None else runner.worker_on(agent)
        if runner is not None and worker is not None:
            runner.post(AgentLost(worker, reason))

    def _wait_for_run(self, job: str) -> None:
        if self._queue.holds_slots(job) and self._runs.get(job) is None:
            raise NotYetError(f"the run of job {job} is about to begin; dial again")

    def _take_slot_from_absent(self, hello: pb.AgentHello) -> None:
        """Where an agent was started again, do not wait for the lease of the one before it, whose stream is gone."""
        holder = self._agents.membership.holder((hello.host, hello.slot))
        if holder is None or holder.agent == hello.agent or holder.state is SlotState.LOST:
            return
        if not self._agents.is_attending(holder.agent):
            self._leave(holder.agent, "its stream broke and another agent took its slot", lost=True)

    def _go_on(self, runner: Runner, worker: int, hello: pb.AgentHello) -> None:
        """An agent of a run is back: what was said in vain, either way, is said again."""
        agent, order, end = hello.agent, self._agents.order(hello.agent), hello.last_end
        if hello.HasField("work"):
            self._agents.work_began(agent)
            if hello.work.pid:
                runner.post(Started(worker, hello.work.pid, hello.work.log))
            if order is not None and order.HasField("release"):
                self._agents.send(agent, order)
        elif (end.job, end.attempt) == (runner.job, runner.attempt):
            self._agents.work_ended(agent)
            runner.post(ended_of(worker, end))
        elif self._agents.works(agent):
            runner.post(AgentLost(worker, "it came back without its executor"))
        elif order is not None and order.HasField("assign"):
            self._agents.send(agent, order)
        elif order is not None:
            runner.post(Ended(worker, EndKind.RELEASED, message="it was released before it was started"))

    def _stop_run_on(self, agent: str) -> None:
        self._agents.stopping(agent)
        runner, slot = self._runs.on(agent), self._agents.membership.slot(agent)
        if runner is not None and slot is not None:
            reason = f"the stage worker of slot {slot.number} on {slot.host} is being stopped"
            runner.post(StopAsked(reason, STOPPING_SECONDS))

    def _note_progress(self, agent: str, heartbeat: pb.Heartbeat) -> None:
        """An executor reports whole steps, and a step may take longer than anything in it."""
        runner = self._runs.get(heartbeat.job)
        worker = None if runner is None else runner.worker_on(agent)
        if runner is not None and worker is not None:
            runner.post(Progressed(worker, heartbeat.idle_seconds))

    def _place(self, agent: str, job: str, attempt: int) -> tuple[Runner | None, int | None]:
        runner = self._runs.get(job)
        if runner is None or runner.attempt != attempt:
            return None, None
        return runner, runner.worker_on(agent)

    def _free_unless_held(self, agent: str) -> None:
        """Free a slot whose executor was given up, now that its agent has none; a run frees the others at its end."""
        slot = self._agents.membership.slot(agent)
        if slot is None or slot.state is not SlotState.BUSY:
            return
        if slot.worker is None or not self._queue.holds_slots(slot.job):
            self._agents.free(agent)
            self._queue.look()


def _is_of(work: pb.AgentWork, runner: Runner, worker: int) -> bool:
    return (work.job, work.attempt, work.worker) == (runner.job, runner.attempt, worker)
