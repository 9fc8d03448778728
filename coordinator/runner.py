"""Carries out one run: feeds ``run.advance`` with what happens, and does what it says."""

import asyncio
import contextlib
import time
from collections.abc import Iterable

import structlog
from takt.v1 import workers_pb2 as pb

from coordinator.assignment import assignment_of
from coordinator.data_client import DataError
from coordinator.decode import faulted_of, ready_of, reported_of, rows_of, saved_of, step_times_of
from coordinator.dispatch import Dispatch
from coordinator.events import (
    Assign,
    CancelAsked,
    ChangeState,
    Command,
    CommitCheckpoint,
    CommitEvaluation,
    CommitStep,
    Connected,
    Disconnected,
    Event,
    Faulted,
    Issue,
    Item,
    ItemKind,
    Progressed,
    Release,
    SendRendezvous,
    StoreOpened,
)
from coordinator.failure import Fault, FaultKind
from coordinator.files import JobFiles
from coordinator.issuing import Issuing
from coordinator.membership import Slot
from coordinator.planning import JobPlan
from coordinator.receipts import Receipts, evaluation, subject_of
from coordinator.records import JobError, JobState, StateChange, WorkerRecord
from coordinator.results import Results
from coordinator.run import advance, begin
from coordinator.run_services import RunServices
from coordinator.run_state import Life, RunSetting
from coordinator.scoring import EvaluationError
from coordinator.sequence import sequence_of
from coordinator.start import Start
from coordinator.store import Store
from coordinator.streams import Outbox, Streams
from coordinator.trace.collected import Collected
from coordinator.tracing import Tracing
from coordinator.workers import Figures, places_of

CANCEL_SECONDS = 2.0
"""How long the request to cancel waits for the run to take note."""

_log = structlog.get_logger()


class Runner:
    """One attempt of one job, from its assignments to its end. Only for the thread of the event loop."""

    def __init__(
        self,
        *,
        job: str,
        attempt: int,
        start: Start,
        plan: JobPlan,
        slots: Iterable[Slot],
        files: JobFiles,
        services: RunServices,
    ) -> None:
        self.job = job
        self.attempt = attempt
        self._plan = plan
        self._start = start
        self._services = services
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        places = places_of(plan, slots)
        self._receipts = Receipts(len(places))
        self._streams = Streams(len(places), strict=services.strict, receipts=self._receipts)
        self._figures = Figures(len(places))
        self._results = Results(
            job=job,
            attempt=attempt,
            plan=plan,
            start=start,
            journal=services.journal,
            files=files,
            metrics=services.metrics,
        )
        self._setting = RunSetting(
            places=places,
            sequence=sequence_of(plan, start),
            credit=services.credit,
            step_timeout_seconds=plan.spec.limits.step_timeout_seconds,
            lease_seconds=plan.spec.limits.lease_seconds,
        )
        self._tracing = Tracing(
            Collected({place.worker: (place.dp_rank, place.stages) for place in places}),
            job=job,
            schedule=plan.train.schedule,
            files=files,
        )
        self._state, self._first_commands = begin(
            self._setting, time.monotonic(), step=start.committed, notices=start.notices
        )
        self._issuing: Issuing | None = None

    @property
    def workers(self) -> tuple[WorkerRecord, ...]:
        """How its workers are getting on."""
        return self._figures.records(self._state)

    def worker_on(self, agent: str) -> int | None:
        """Return the worker on an agent's slot, None where there is none."""
        return next((place.worker for place in self._setting.places if place.agent == agent), None)

    def is_gone(self, agent: str) -> bool:
        """Whether the executor on an agent's slot was seen to end."""
        worker = self.worker_on(agent)
        return worker is None or self._state.members[worker].life is Life.GONE

    def post(self, event: Event) -> None:
        """Tell what happened."""
        self._events.put_nowait(event)

    def connect(self, hello: pb.ExecutorHello) -> Outbox:
        """An executor takes up its place; return what it is to be sent.

        Raises:
            StreamTakenError: the place is taken.
        """
        outbox = self._streams.open(hello.worker, pid=hello.pid, done_seq=hello.done_seq)
        self._streams.note_time(hello.worker, hello.sent)
        self.post(Connected(hello.worker, hello.pid))
        return outbox

    def disconnected(self, worker: int, outbox: Outbox) -> None:
        """A stream of an executor has ended; one that a later stream replaced is of no interest."""
        if self._streams.ended(worker, outbox):
            self.post(Disconnected(worker))

    def told(self, worker: int, message: pb.ExecuteRequest) -> None:
        """An executor said something; what it says again is dropped."""
        self._figures.heard(worker)
        if not self._receipts.note(worker, message.number, subject_of(message, self._state.outstanding)):
            return
        match message.WhichOneof("message"):
            case "store_opened":
                self.post(StoreOpened(worker, message.store_opened.address))
            case "ready":
                self.post(ready_of(worker, message.ready))
            case "done":
                self._streams.done(worker, message.done.seq)
                self.post(Progressed(worker))
            case "step":
                reported = reported_of(worker, message.step)
                self._figures.add(reported.result)
                self._streams.done(worker, message.step.last_seq)
                self._streams.note_time(worker, message.step.sent)
                if reported.kind is ItemKind.TRAIN:
                    self._tracing.add(worker, step_times_of(message.step))
                self.post(reported)
            case "rows":
                self._take_rows(worker, message.rows)
            case "saved":
                self.post(saved_of(worker, message.saved))
            case "failure":
                stages, log = self._setting.places[worker].stages, f"logs/worker-{worker}.log"
                self.post(faulted_of(worker, message.failure, stages=stages, log=log))

    async def run(self) -> None:
        """Carry the run out; return when it has ended, and all of it is on disk."""
        train, layers = self._plan.train, [piece.num_layers for piece in self._plan.partition]
        chunks = train.placement.num_chunks
        _log.info("job begins", job=self.job, schedule=train.schedule, num_chunks=chunks, layers_per_stage=layers)
        self._issuing = Issuing(
            job=self.job,
            sequence=self._setting.sequence,
            credit=self._setting.credit,
            dispatch=Dispatch(self._plan, job=self.job, attempt=self.attempt),
            digests={split.name: split.digest for split in self._plan.data.splits},
            data=self._services.data,
            streams=self._streams,
            on_error=self._issuing_failed,
        )
        try:
            await self._obey_all(self._first_commands)
            while not self._state.state.is_final:
                await self._handle(await self._events.get())
                self._events.task_done()
        finally:
            self._issuing.close()
            self._streams.close()

    async def cancel(self, reason: str, grace_seconds: float) -> None:
        """Ask for the end; return when that has been recorded, or after a while."""
        self.post(CancelAsked(reason, grace_seconds))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._events.join()

    async def abandon(self, reason: str) -> None:
        """Record the end of a cancelled run that is not waited for any longer."""
        await self._change_state(ChangeState(state=JobState.CANCELLED, reason=reason, step=self._state.step))

    async def break_off(self, reason: str) -> None:
        """Release all workers and record the end of a run that this program cannot carry on."""
        for worker in range(len(self._setting.places)):
            release = pb.Release(job=self.job, attempt=self.attempt, grace_seconds=0)
            self._send(worker, pb.AttendResponse(release=release))
        error = JobError(type="coordinator", message=reason)
        await self._change_state(ChangeState(state=JobState.FAILED, reason=reason, step=self._state.step, error=error))

    async def _handle(self, event: Event) -> None:
        self._state, commands = advance(self._state, event, time.monotonic())
        await self._obey_all(commands)

    async def _obey_all(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            try:
                await self._obey(command)
            except (EvaluationError, OSError, ValueError) as error:
                _log.exception("a result of the run could not be kept", job=self.job)
                # Ahead of all that is waiting, so that the run cannot succeed meanwhile.
                await self._handle(_fault("coordinator", error))

    async def _obey(self, command: Command) -> None:
        match command:
            case Assign(worker):
                self._send(worker, pb.AttendResponse(assign=self._assignment(worker)))
            case Release(worker, grace_seconds):
                self._issuing_now.close()
                release = pb.Release(job=self.job, attempt=self.attempt, grace_seconds=grace_seconds)
                self._send(worker, pb.AttendResponse(release=release))
            case SendRendezvous(workers, address):
                self._streams.meet(workers, address)
            case Issue(item):
                self._issuing_now.issue(item)
            case CommitStep(step, results):
                await self._results.commit_step(results, self._issuing_now.take_description(step))
                self._receipts.settle(Item(ItemKind.TRAIN, step, step))
                self._tracing.write_if_due()
            case CommitCheckpoint(step, shards, agreed):
                await self._results.commit_checkpoint(step, shards, agreed)
                self._receipts.settle(Item(ItemKind.SAVE, step, step))
            case CommitEvaluation(after, split):
                await self._results.commit_evaluation(after, split)
                self._receipts.settle(evaluation(split, after))
            case ChangeState():
                if command.state.is_final:
                    await self._tracing.finish()
                if command.state is JobState.RUNNING:
                    self._results.start()
                await self._change_state(command)

    async def _change_state(self, change: ChangeState) -> None:
        record = StateChange(
            state=change.state, reason=change.reason, attempt=self.attempt, step=change.step, time=time.time()
        )
        workers = self.workers

        def write(store: Store) -> None:
            store.set_workers(self.job, workers)
            store.change_state(self.job, record, error=change.error)

        await self._services.journal.do(write)
        _log.info("job changed its state", job=self.job, state=change.state.value, reason=change.reason)

    def _issuing_failed(self, error: Exception) -> None:
        _log.error("no more steps can be issued", job=self.job, exc_info=error)
        self.post(_fault("data" if isinstance(error, DataError) else "coordinator", error))

    def _take_rows(self, worker: int, message: pb.EvaluationRows) -> None:
        try:
            self._results.add_rows(message.split, rows_of(message))
            self.post(Progressed(worker))
        except EvaluationError as error:
            self.post(_fault("coordinator", error))

    def _assignment(self, worker: int) -> pb.Assignment:
        return assignment_of(
            self._plan,
            job=self.job,
            attempt=self.attempt,
            worker=worker,
            saved=self._start.saved,
            data_service=self._services.data.address,
        )

    def _send(self, worker: int, message: pb.AttendResponse) -> None:
        self._services.agents.send(self._setting.places[worker].agent, message)

    @property
    def _issuing_now(self) -> Issuing:
        if self._issuing is None:
            raise RuntimeError("the run has not begun")
        return self._issuing


def _fault(kind: str, error: Exception) -> Faulted:
    """Return what the coordinator itself met as an event."""
    return Faulted(Fault(kind=FaultKind.COORDINATOR, error=JobError(type=kind, message=str(error))))
