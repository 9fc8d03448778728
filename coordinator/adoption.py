"""Takes over the jobs of coordinators that are gone."""

import time
from pathlib import Path

import structlog

from coordinator.checkpoints import complete_steps
from coordinator.files import JobFiles
from coordinator.kept import KeptAttempt
from coordinator.ownership import Ownership, served
from coordinator.queue import Queue, Queued
from coordinator.records import JobRecord, JobState, StateChange, WorkerRecord
from coordinator.run_services import RunServices
from coordinator.start import Carried
from coordinator.store import Store

_log = structlog.get_logger()


class Adoption:
    """Only for the thread of the event loop."""

    def __init__(self, *, state_dir: Path, ownership: Ownership, services: RunServices, queue: Queue) -> None:
        self._state_dir = state_dir
        self._ownership = ownership
        self._services = services
        self._queue = queue

    async def adopt_all(self, *, of_run: str | None = None) -> None:
        """Take over every job whose coordinator is gone; call it before workers can come back.

        Args:
            of_run: only those of coordinators that served this `takt run`; None for all.
        """
        for record in await self._services.journal.do(Store.jobs):
            is_meant = of_run is None or served(record.owner, of_run)
            if is_meant and self.is_orphan(record):
                await self.adopt(record)

    async def submitted_again(self, record: JobRecord) -> None:
        """Queue a job again that had not ended well; it goes on from its last checkpoint."""
        await self._queue.settled(record.id)
        change = StateChange(
            state=JobState.QUEUED,
            reason=f"submitted again after step {record.step}, waits for slots",
            attempt=record.attempt,
            step=record.step,
            time=time.time(),
        )

        def write(store: Store) -> bool:
            present = store.job(record.id)
            if present is None or present.state is not record.state:
                return False  # somebody else was quicker
            mine = present.owner == self._ownership.owner or store.take_over(record.id, owner=present.owner)
            if mine:
                store.change_state(record.id, change)
            return mine

        if await self._services.journal.do(write):
            self._queue.add(Queued.of(record))
            _log.info("job submitted again", job=record.id, step=record.step)

    def is_orphan(self, record: JobRecord) -> bool:
        """Whether a job goes on and its coordinator is gone."""
        mine = record.owner == self._ownership.owner
        return not (mine or record.state.is_final or self._ownership.is_alive(record.owner))

    async def adopt(self, record: JobRecord) -> None:
        """Take over a job: carry on its attempt where it was running, else queue it again."""
        if not await self._services.journal.do(lambda store: self._take_over(store, record)):
            return  # another coordinator was quicker
        self._ownership.bury(record.owner)
        queued = Queued.of(record)
        attempt = await self._services.journal.do(lambda store: self._attempt(store, record))
        if record.state is JobState.CANCELLING:
            await self._change(record, JobState.CANCELLED, " before it was seen to end")
        elif attempt is not None:
            await self._queue.carry_on(queued, *attempt, attempt=record.attempt)
        else:
            if record.state is not JobState.QUEUED:
                await self._change(record, JobState.RECOVERING, "; it goes on as soon as it has its slots")
            self._queue.add(queued)
        _log.info("job adopted", job=record.id, state=record.state.value, carried_on=attempt is not None)

    def _take_over(self, store: Store, record: JobRecord) -> bool:
        if not store.take_over(record.id, owner=record.owner):
            return False
        files = JobFiles.of(self._state_dir, record.id)
        with store.owned(record.id):
            files.create(record.spec_json)
            files.repair(store.steps(record.id), store.evaluations(record.id))
        return True

    def _attempt(self, store: Store, record: JobRecord) -> tuple[KeptAttempt, Carried, list[WorkerRecord]] | None:
        """Return an attempt whose workers may still be at work, as far as it has come; None where there is none."""
        workers = store.workers(record.id)
        if record.state is not JobState.RUNNING or record.facts is None or not all(worker.agent for worker in workers):
            return None
        kept = KeptAttempt.of(record.facts)
        saved = complete_steps(JobFiles.of(self._state_dir, record.id).folder)
        carried = kept.carried(store.steps(record.id), store.evaluations(record.id), saved=saved)
        return None if carried is None else (kept, carried, workers)

    async def _change(self, record: JobRecord, state: JobState, what_now: str) -> None:
        reason = f"its coordinator ended at step {record.step} without a word{what_now}"
        change = StateChange(state=state, reason=reason, attempt=record.attempt, step=record.step, time=time.time())
        await self._services.journal.do(lambda store: store.change_state(record.id, change))
