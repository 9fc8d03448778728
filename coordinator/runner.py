"""Carries out one run: feeds ``run.advance`` with what happens, and does what it says."""

import asyncio
import contextlib
import time

import structlog
from takt.v1 import workers_pb2 as pb

from coordinator.assignment import assignment_of
from coordinator.data_client import DataError
from coordinator.dispatch import Dispatch
from coordinator.events import CancelAsked, Event, Faulted, Item, ItemKind
from coordinator.files import JobFiles
from coordinator.hearing import Hearing
from coordinator.issuing import Issuing
from coordinator.numbering import commands_before
from coordinator.planning import JobPlan
from coordinator.receipts import Receipts, evaluation
from coordinator.records import JobError, JobState, StateChange, WorkerRecord
from coordinator.results import Results
from coordinator.run import advance, begin, carry_on
from coordinator.run_commands import (
    Assign,
    ChangeState,
    Command,
    CommitCheckpoint,
    CommitEvaluation,
    CommitStep,
    DropCheckpoint,
    Issue,
    Release,
    SendRendezvous,
)
from coordinator.run_services import RunServices
from coordinator.run_state import Life, Place, RunSetting
from coordinator.scoring import EvaluationError
from coordinator.sequence import sequence_of
from coordinator.start import Carried, Start
from coordinator.store import Store
from coordinator.streams import Streams
from coordinator.trace.collected import Collected
from coordinator.tracing import Tracing
from coordinator.workers import Figures

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
        carried: Carried | None = None,
        plan: JobPlan,
        places: tuple[Place, ...],
        files: JobFiles,
        services: RunServices,
    ) -> None:
        """Prepare an attempt.

        Args:
            job: its job.
            attempt: its number, from 1.
            start: where it begins, or began.
            carried: how far it has come where another coordinator began it; None begins it.
            plan: what is run.
            places: of its workers.
            files: of its job.
            services: what all runs work with.
        """
        self.job = job
        self.attempt = attempt
        self._plan = plan
        self._start = start
        self._services = services
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        sequence = sequence_of(plan, start)
        self._next_step = (start.step if carried is None else carried.step) + 1
        self._receipts = Receipts(len(places))
        self._streams = Streams(
            commands_before(plan, sequence, step=self._next_step - 1), strict=services.strict, receipts=self._receipts
        )
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
            sequence=sequence,
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
        now = time.monotonic()
        if carried is None:
            begun = begin(self._setting, now, step=start.committed, notices=start.notices)
        else:
            begun = carry_on(self._setting, now, carried)
        self._state, self._first_commands = begun
        self._issuing: Issuing | None = None
        self.hearing = Hearing(
            places=places,
            streams=self._streams,
            receipts=self._receipts,
            figures=self._figures,
            tracing=self._tracing,
            results=self._results,
            carried=carried,
            post=self.post,
            outstanding=lambda: self._state.outstanding,
        )
        """What its executors speak to."""

    @property
    def state(self) -> JobState:
        """What the run has come to; RECOVERING where it is over and its job is not."""
        return self._state.state

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

    async def run(self) -> None:
        """Carry the run out; return when it has ended, and all of it is on disk."""
        train, layers = self._plan.train, [piece.num_layers for piece in self._plan.partition]
        chunks = train.placement.num_chunks
        _log.info(
            "job begins",
            job=self.job,
            attempt=self.attempt,
            step=self._next_step,
            schedule=train.schedule,
            num_chunks=chunks,
            layers_per_stage=layers,
        )
        self._issuing = Issuing(
            job=self.job,
            sequence=self._setting.sequence,
            first_step=self._next_step,
            credit=self._setting.credit,
            dispatch=Dispatch(self._plan, job=self.job, attempt=self.attempt),
            digests={split.name: split.digest for split in self._plan.data.splits},
            data=self._services.data,
            streams=self._streams,
            on_error=self._issuing_failed,
        )
        try:
            await self._obey_all(self._first_commands)
            while not self._state.is_over:
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
                await self._handle(Faulted.met("coordinator", error))

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
                await self._results.commit_step(results, await self._issuing_now.take_description(step))
                self._receipts.settle(Item(ItemKind.TRAIN, step, step))
                self._tracing.write_if_due()
            case CommitCheckpoint(step, shards, agreed, seconds):
                await self._results.commit_checkpoint(step, shards, agreed, seconds=seconds)
                self._receipts.settle(Item(ItemKind.SAVE, step, step))
            case DropCheckpoint(step, reason):
                await self._results.drop_checkpoint(step, reason)
                self._receipts.settle(Item(ItemKind.SAVE, step, step))
            case CommitEvaluation(after, split):
                await self._results.commit_evaluation(after, split)
                self._receipts.settle(evaluation(split, after))
            case ChangeState():
                if command.state.is_final or command.state is JobState.RECOVERING:
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
        self.post(Faulted.met("data" if isinstance(error, DataError) else "coordinator", error))

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
