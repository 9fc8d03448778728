"""The runs that are under way."""

import asyncio
import time

import structlog

from coordinator.events import AgentLost, CancelAsked, Tick
from coordinator.runner import Runner

_log = structlog.get_logger()


class Runs:
    """The runners of this coordinator, each with its task. Only for the thread of the event loop."""

    def __init__(self) -> None:
        self._runners: dict[str, Runner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def get(self, job: str) -> Runner | None:
        """Return the run of a job, None where it is not running."""
        return self._runners.get(job)

    async def carry_out(self, runner: Runner) -> None:
        """Carry a run out to its end, whatever happens."""
        self._runners[runner.job] = runner
        task = self._tasks[runner.job] = asyncio.create_task(runner.run())
        try:
            await asyncio.wait({task})
            failure = None if task.cancelled() else task.exception()
            if failure is not None:
                _log.error("a run broke", job=runner.job, exc_info=failure)
                await runner.break_off(f"the coordinator failed: {failure!r}; see its log")
        finally:
            task.cancel()
            del self._runners[runner.job], self._tasks[runner.job]

    def tick(self) -> None:
        """Time has passed."""
        for runner in self._runners.values():
            runner.post(Tick())

    def agent_lost(self, job: str, agent: str, reason: str) -> None:
        """Tell the run of a job that an agent is gone."""
        runner = self._runners.get(job)
        worker = None if runner is None else runner.worker_on(agent)
        if runner is not None and worker is not None:
            runner.post(AgentLost(worker, reason))

    async def stop(self, reason: str, *, grace_seconds: float, limit_seconds: float) -> None:
        """Cancel all runs and wait for their end; those that have not ended in time are recorded as cancelled."""
        for runner in self._runners.values():
            runner.post(CancelAsked(reason, grace_seconds))
        give_up_at = time.monotonic() + limit_seconds
        while self._tasks and time.monotonic() < give_up_at:
            self.tick()
            await asyncio.wait(self._tasks.values(), timeout=0.2)
            await asyncio.sleep(0)  # lets carry_out take the ended ones off the list
        for job, runner in list(self._runners.items()):
            self._tasks[job].cancel()
            await runner.abandon(f"{reason}; its workers were not seen to end")
