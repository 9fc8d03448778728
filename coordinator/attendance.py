"""What agents and executors say, and to whom it goes."""

import structlog
from takt.rpc.errors import TaktError
from takt.v1 import workers_pb2 as pb

from coordinator.agents import Agents, Outbox
from coordinator.decode import ended_of
from coordinator.events import Progressed, Started
from coordinator.membership import SlotState
from coordinator.queue import Queue
from coordinator.runner import Runner
from coordinator.runs import Runs

_log = structlog.get_logger()


class StaleAttemptError(TaktError):
    """An executor of a run that is over, or never was."""


class Attendance:
    """Only for the thread of the event loop."""

    def __init__(self, *, agents: Agents, runs: Runs, queue: Queue) -> None:
        self._agents = agents
        self._runs = runs
        self._queue = queue

    def joined(self, hello: pb.AgentHello) -> Outbox:
        """An agent offers its slot; return what it is to be sent.

        Raises:
            SlotTakenError: another agent that lives offers the slot.
        """
        self._tell_lost(hello.agent, "it lost its stream and dialled anew")
        outbox = self._agents.join(hello)
        _log.info("slot joined", host=hello.host, slot=hello.slot, device=hello.device, pid=hello.pid)
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
                runner, worker = self._place(agent, started.job, started.attempt)
                if runner is not None and worker is not None:
                    runner.post(Started(worker, started.pid, started.log))
            case "ended":
                runner, worker = self._place(agent, message.ended.job, message.ended.attempt)
                if runner is not None and worker is not None:
                    runner.post(ended_of(worker, message.ended))
                self._free_unless_held(agent)
            case "inspected":
                self._agents.inspected(message.inspected)

    def gone(self, agent: str, outbox: Outbox, reason: str, *, lost: bool) -> None:
        """An agent's stream has ended; that of an agent which has dialled anew since is of no interest."""
        if self._agents.attends(agent, outbox):
            self._leave(agent, reason, lost=lost)

    def expire(self) -> None:
        """Take the agents off whose lease has run out."""
        for agent in self._agents.lapsed():
            self._leave(agent, "it was not heard of any more", lost=True)

    def run_of(self, hello: pb.ExecutorHello) -> Runner:
        """Return the run that an executor belongs to.

        Raises:
            StaleAttemptError: there is none, or it is another attempt.
        """
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
        slot = self._agents.membership.slot(agent)
        if slot is not None:
            self._runs.agent_lost(slot.job, agent, reason)

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
        if slot is not None and slot.state is SlotState.BUSY and not self._queue.holds_slots(slot.job):
            self._agents.free(agent)
            self._queue.look()
