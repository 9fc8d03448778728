"""What users may do with jobs: submit, look, cancel."""

import asyncio
import time
import uuid
from dataclasses import replace
from pathlib import Path

import structlog
from takt.rpc.errors import TaktError, UnreachableError

from coordinator.adoption import Adoption
from coordinator.beginning import find_origin
from coordinator.choices import ScheduleName
from coordinator.files import JobFiles
from coordinator.inspection import Facts, inspect
from coordinator.job_id import check_job_id
from coordinator.layout import train_plan
from coordinator.listing import Listing, Place
from coordinator.ownership import Ownership
from coordinator.planning import JobPlan, plan_job
from coordinator.queue import Queue, Queued
from coordinator.records import JobRecord, JobState, JobView
from coordinator.run_services import RunServices
from coordinator.runs import Runs
from coordinator.spec import JobSpec, digest, from_json, to_json
from coordinator.store import JobExistsError, Store

CANCEL_GRACE_SECONDS = 15.0
_log = structlog.get_logger()


class JobNotFoundError(TaktError):
    """There is no such job."""


class JobConflictError(TaktError):
    """The id belongs to a job with another spec."""


class Jobs:
    """Only for the thread of the event loop."""

    def __init__(
        self,
        *,
        state_dir: Path,
        ownership: Ownership,
        services: RunServices,
        queue: Queue,
        runs: Runs,
        adoption: Adoption,
        embedded: bool,
    ) -> None:
        self._state_dir = state_dir
        self._embedded = embedded
        self._ownership = ownership
        self._services = services
        self._queue = queue
        self._runs = runs
        self._adoption = adoption

    async def submit(
        self, job: str, spec_json: str, *, limit_seconds: float, priority: int = 0, facts: Facts | None = None
    ) -> JobView:
        """Check a job and queue it; an equal one with this id is returned, and goes on where it had not ended well.

        Args:
            job: id, or empty for one that is made up.
            spec_json: the resolved spec.
            priority: its place in the queue, the higher first; that of a job that is there already stays.
            limit_seconds: how long model and data may be looked at; what takes longer is done at admission.
            facts: what the caller found out; an embedded coordinator takes its word, for they see the same files.

        Raises:
            SpecError: the job cannot run as it is written.
            JobIdError: the id is malformed.
            JobConflictError: the id belongs to a job with another spec.
        """
        spec = from_json(spec_json)
        job = job or f"{spec.name.lstrip('-._') or 'job'}-{uuid.uuid4().hex[:8]}"
        check_job_id(job)
        present = await self._same(job, spec)
        if present is not None:
            if present.record.state in (JobState.FAILED, JobState.CANCELLED):
                await self._adoption.submitted_again(present.record)
            return await self.view(job)
        if facts is not None and self._embedded:
            plan: JobPlan | None = await asyncio.to_thread(plan_job, spec, model=facts.model, data=facts.data)
        else:
            plan = await self._inspected(spec, limit_seconds)
        await asyncio.to_thread(find_origin, self._state_dir, spec, plan=plan)
        record = JobRecord(
            id=job,
            name=spec.name,
            spec_json=to_json(spec),
            digest=digest(spec),
            owner=self._ownership.owner,
            num_slots=spec.parallel.pp * spec.parallel.dp * spec.parallel.tp,
            state=JobState.QUEUED,
            reason="submitted, waits for slots",
            created=time.time(),
            priority=priority,
        )
        files = JobFiles.of(self._state_dir, job)

        def write(store: Store) -> None:
            store.add_job(record)
            files.create(record.spec_json)

        try:
            await self._services.journal.do(write)
        except JobExistsError:
            present = await self._same(job, spec)
            if present is None:
                raise
            return present
        self._queue.add(Queued(job=job, spec=spec, plan=plan, priority=priority, created=record.created))
        _log.info("job submitted", job=job, slots=record.num_slots)
        return await self.view(job)

    async def view(self, job: str) -> JobView:
        """Return one job.

        Raises:
            JobNotFoundError: there is none.
        """
        view = await self._find(job)
        if view is None:
            raise JobNotFoundError(f"there is no job {job}; 'takt list' shows them all")
        runner = self._runs.get(job)
        return view if runner is None else replace(view, workers=runner.workers)

    async def page(self, listing: Listing) -> tuple[list[JobRecord], Place | None]:
        """Return the jobs of one page, the newest first, and the last one's place where more follow it."""
        return await self._services.journal.do(lambda store: store.page(listing))

    async def cancel(self, job: str, *, grace_seconds: float) -> JobView:
        """Have a job end; one that is over stays as it is.

        Raises:
            JobNotFoundError: there is none.
        """
        view = await self.view(job)
        if not view.record.state.is_final:
            await self._queue.cancel(job, "cancelled by request", grace_seconds=grace_seconds or CANCEL_GRACE_SECONDS)
        return await self.view(job)

    async def _same(self, job: str, spec: JobSpec) -> JobView | None:
        view = await self._find(job)
        if view is not None and view.record.digest != digest(spec):
            raise JobConflictError(
                f"job {job} exists with another spec; submit this one under another --id, or leave the id out"
            )
        return view

    async def _find(self, job: str) -> JobView | None:
        view = await self._services.journal.do(lambda store: store.view(job))
        if view is None or not self._adoption.is_orphan(view.record):
            return view
        await self._adoption.adopt(view.record)
        return await self._services.journal.do(lambda store: store.view(job))

    async def _inspected(self, spec: JobSpec, limit_seconds: float) -> JobPlan | None:
        """Return the job's plan, None where nobody is there to look at its model or its data."""
        agents = self._services.agents
        try:
            if agents.can_be_asked():
                return await inspect(spec, agents=agents, data=self._services.data, limit_seconds=limit_seconds)
        except UnreachableError as error:
            _log.warning("job is looked at when it gets its slots", name=spec.name, reason=str(error))
        if spec.schedule.name is not ScheduleName.AUTO:
            await asyncio.to_thread(train_plan, spec)  # a plan that breaks a rule is refused all the same
        return None
