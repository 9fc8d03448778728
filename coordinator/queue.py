"""The jobs that wait for slots, and how one gets from the queue to its run."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from takt.rpc.errors import UnreachableError

from coordinator.beginning import find_saved
from coordinator.checkpoints import DamagedCheckpointError
from coordinator.files import JobFiles
from coordinator.inspection import inspect
from coordinator.kept import KeptAttempt
from coordinator.membership import Demand, Slot
from coordinator.planning import JobPlan, plan_job
from coordinator.problem import SpecError
from coordinator.records import JobError, JobRecord, JobState, StateChange, WorkerRecord
from coordinator.run_services import RunServices
from coordinator.runner import Runner
from coordinator.runs import Runs
from coordinator.spec import JobSpec, from_json
from coordinator.start import Carried, Start
from coordinator.store import Store
from coordinator.workers import places_of

INSPECT_SECONDS = 60.0
RETRY_SECONDS = 2.0
"""After which a job is looked at again whose model or data nobody could look at."""

_log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Queued:
    """A job that waits for its slots."""

    job: str
    spec: JobSpec
    priority: int
    """The higher goes first."""
    created: float
    """When it was submitted, in Unix seconds; among equals the older goes first."""
    plan: JobPlan | None = None
    """Absent where nobody was there to look at its model and data."""
    not_before: float = 0.0
    """In seconds of the monotonic clock."""
    waits_for: tuple[str, int] = ("", 0)
    """Reason and missing slots, as they were last written."""

    @classmethod
    def of(cls, record: JobRecord) -> "Queued":
        """Return the place of a job that is in the store."""
        spec = from_json(record.spec_json)
        return cls(job=record.id, spec=spec, priority=record.priority, created=record.created)

    @property
    def num_slots(self) -> int:
        """Slots that it needs, all at once."""
        parallel = self.spec.parallel
        return parallel.pp * parallel.dp * parallel.tp


class Queue:
    """Only for the thread of the event loop."""

    def __init__(self, *, state_dir: Path, services: RunServices, runs: Runs) -> None:
        self._state_dir = state_dir
        self._services = services
        self._runs = runs
        self._waiting: list[Queued] = []
        self._admitted: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def add(self, queued: Queued) -> None:
        """Put a job where its priority and its age want it."""
        self._waiting.append(queued)
        self.look()

    def look(self) -> None:
        """Slots or jobs have changed: look at the queue soon."""
        self._changed.set()

    async def settled(self, job: str) -> None:
        """Return when a run that has just ended is off the list."""
        if job in self._admitted:
            await asyncio.wait({self._admitted[job]})

    def holds_slots(self, job: str) -> bool:
        """Whether a job was admitted and is not over."""
        return job in self._admitted

    async def wait_for_change(self, *, limit_seconds: float) -> None:
        """Return when slots or jobs have changed, or after a while."""
        try:
            async with asyncio.timeout(limit_seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def admit(self) -> None:
        """Admit what can be admitted; say of the others what they wait for."""
        membership = self._services.agents.membership
        now = time.monotonic()
        in_order = sorted(self._waiting, key=lambda queued: (-queued.priority, queued.created))
        ripe = {queued.job: queued for queued in in_order if queued.not_before <= now}
        found = membership.admit([Demand(queued.job, queued.num_slots) for queued in ripe.values()])
        if found.admitted is not None:
            queued = ripe[found.admitted]
            slots = membership.chosen(queued.num_slots)
            self._services.agents.assign(queued.job, slots)
            self._waiting.remove(queued)
            self._admitted[queued.job] = asyncio.create_task(
                self._carry_out(queued, [slot.agent for slot in slots], self._begun(queued, slots))
            )
            self.look()
        for waiting in found.waiting:
            await self._say(ripe[waiting.job], waiting.reason, waiting.missing_slots)

    async def cancel(self, job: str, reason: str, *, grace_seconds: float) -> None:
        """Have a job end: at once where it has not begun, else by its run; nothing happens where it is over."""
        runner = self._runs.get(job)
        if runner is not None:
            await runner.cancel(reason, grace_seconds)
            return
        preparing = self._admitted.get(job)
        if preparing is not None:
            preparing.cancel()
            await asyncio.wait({preparing})
        if preparing is not None or any(queued.job == job for queued in self._waiting):
            self._waiting = [queued for queued in self._waiting if queued.job != job]
            await self._end(job, JobState.CANCELLED, reason)

    async def stop(self, reason: str, *, grace_seconds: float, limit_seconds: float, drop_waiting: bool) -> None:
        """End all runs, their state saved; all jobs are left for the next coordinator, or cancelled."""
        for job, task in list(self._admitted.items()):
            if self._runs.get(job) is None:
                task.cancel()
                await asyncio.wait({task})
        await self._runs.stop(
            reason, grace_seconds=grace_seconds, limit_seconds=limit_seconds, is_for_good=drop_waiting
        )
        for queued in self._waiting if drop_waiting else ():
            await self._end(queued.job, JobState.CANCELLED, reason)

    async def carry_on(
        self, queued: Queued, kept: KeptAttempt, carried: Carried, workers: Sequence[WorkerRecord], *, attempt: int
    ) -> None:
        """Carry on an attempt that another coordinator began; return when its workers, who hold slots, can come."""
        runner = await self._carried_on(queued, kept, carried, workers, attempt=attempt)
        begun = self._carry_out(queued, [worker.agent for worker in workers], runner)
        self._admitted[queued.job] = asyncio.create_task(begun)
        await asyncio.sleep(0)  # by then it is among the runs

    async def _carry_out(
        self, queued: Queued, agents: Sequence[str], prepared: Runner | Coroutine[Any, Any, Runner | None]
    ) -> None:
        """Carry out a run on the slots of ``agents``, or what ``prepared`` returns, if it returns anything."""
        job = queued.job
        runner: Runner | None = None
        try:
            runner = prepared if isinstance(prepared, Runner) else await prepared
            if runner is not None:
                await self._runs.carry_out(runner)
                if runner.state is JobState.RECOVERING:
                    self._waiting.append(queued)
        except asyncio.CancelledError:
            if runner is None:
                self._waiting.insert(0, queued)
            raise
        except (SpecError, DamagedCheckpointError) as error:
            await self._end(job, JobState.FAILED, str(error), error=JobError(type="job", message=str(error)))
        except Exception as error:
            _log.exception("a job could not be carried out", job=job)
            await self._end(job, JobState.FAILED, f"the coordinator failed: {error!r}; see its log")
        finally:
            del self._admitted[job]
            self._services.metrics.ended(job)
            for agent in agents:
                if runner is None or runner.is_gone(agent):
                    self._services.agents.free(agent)
            self.look()

    async def _begun(self, queued: Queued, slots: Sequence[Slot]) -> Runner | None:
        """Return the next attempt of an admitted job; None where it was refused or has to wait."""
        plan, job = await self._planned(queued), queued.job
        if plan is None:
            return None
        attempt, start = await self._start(job, plan)
        return Runner(
            job=job,
            attempt=attempt,
            start=start,
            plan=plan,
            places=places_of(plan, [(slot.agent, slot.host) for slot in slots]),
            files=JobFiles.of(self._state_dir, job),
            services=self._services,
        )

    async def _carried_on(
        self, queued: Queued, kept: KeptAttempt, carried: Carried, workers: Sequence[WorkerRecord], *, attempt: int
    ) -> Runner:
        job = queued.job
        plan = await asyncio.to_thread(plan_job, queued.spec, model=kept.model, data=kept.data)
        files = JobFiles.of(self._state_dir, job)
        self._services.metrics.planned(job, bubble_fraction=float(plan.prediction.bubble_fraction))
        return Runner(
            job=job,
            attempt=attempt,
            start=kept.start,
            carried=carried,
            plan=plan,
            places=places_of(plan, [(worker.agent, worker.host) for worker in workers]),
            files=files,
            services=self._services,
        )

    async def _planned(self, queued: Queued) -> JobPlan | None:
        """Return the plan of an admitted job, all of it on disk; None where it was refused or has to wait."""
        try:
            plan = queued.plan or await inspect(
                queued.spec, agents=self._services.agents, data=self._services.data, limit_seconds=INSPECT_SECONDS
            )
        except SpecError as error:
            await self._end(queued.job, JobState.FAILED, str(error), error=JobError(type="job", message=str(error)))
            return None
        except UnreachableError as error:
            queued.not_before = time.monotonic() + RETRY_SECONDS
            self._waiting.insert(0, queued)
            await self._say(queued, f"{error}; this is tried again", 0)
            return None
        files, job = JobFiles.of(self._state_dir, queued.job), queued.job
        bubble = float(plan.prediction.bubble_fraction)

        def write(store: Store) -> None:
            with store.owned(job):
                files.write_plan(plan.train)
            store.set_plan(job, total_steps=plan.total_steps, bubble_fraction=bubble)

        await self._services.journal.do(write)
        self._services.metrics.planned(job, bubble_fraction=bubble)
        return plan

    async def _start(self, job: str, plan: JobPlan) -> tuple[int, Start]:
        """Return the number of a job's next attempt, and where it begins.

        Raises:
            SpecError: it cannot go on from what it is to go on from.
        """
        found = await asyncio.to_thread(find_saved, self._state_dir, job, plan)
        for notice in found.notices:
            _log.warning("a checkpoint cannot be used", job=job, reason=notice)

        def keep(store: Store) -> tuple[int, Start]:
            record = store.job(job)
            assert record is not None, "a job that was queued is in the store"
            start = Start.after(found, store.steps(job), store.evaluations(job))
            if not record.step and start.step:
                store.set_start(job, start.step)  # another job's state
            kept = KeptAttempt(
                model=plan.model,
                data=plan.data,
                begins_after=start.step,
                committed=start.committed,
                evaluated=start.evaluations,
            )
            store.set_facts(job, kept.text())
            return record.attempt + 1, start

        return await self._services.journal.do(keep)

    async def _say(self, queued: Queued, reason: str, missing_slots: int) -> None:
        if queued.waits_for == (reason, missing_slots):
            return
        queued.waits_for = (reason, missing_slots)
        job = queued.job
        await self._services.journal.do(
            lambda store: store.set_waiting(job, reason=reason, missing_slots=missing_slots)
        )

    async def _end(self, job: str, state: JobState, reason: str, *, error: JobError | None = None) -> None:
        def write(store: Store) -> None:
            record = store.job(job)
            assert record is not None, "a job that was queued is in the store"
            change = StateChange(state=state, reason=reason, attempt=record.attempt, step=record.step, time=time.time())
            store.change_state(job, change, error=error)

        await self._services.journal.do(write)
        _log.info("job changed its state", job=job, state=state.value, reason=reason)
