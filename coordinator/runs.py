"""The runs that are under way."""

import asyncio
import time

import structlog

from coordinator.events import CancelAsked, StopAsked, Tick
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

    def on(self, agent: str) -> Runner | None:
        """Return the run that has a worker on an agent's slot which was not seen to end, None where there is none."""
        return next((runner for runner in self._runners.values() if not runner.is_gone(agent)), None)

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

    async def stop(self, reason: str, *, grace_seconds: float, limit_seconds: float, is_for_good: bool) -> None:
        """End all runs and wait for it: cancelled where it is for good, else so that their jobs go on later.

        Those that have not ended in time are recorded as cancelled, or left to the next coordinator as they are.
        """
        for runner in self._runners.values():
            runner.post((CancelAsked if is_for_good else StopAsked)(reason, grace_seconds))
        give_up_at = time.monotonic() + limit_seconds
        while self._tasks and time.monotonic() < give_up_at:
            self.tick()
            await asyncio.wait(self._tasks.values(), timeout=0.2)
            await asyncio.sleep(0)  # lets carry_out take the ended ones off the list
        for job, runner in list(self._runners.items()):
            self._tasks[job].cancel()
            if not is_for_good:
                _log.warning("a run was not seen to end; the next coordinator carries it on", job=job)
                continue
            await runner.abandon(f"{reason}; its workers were not seen to end")
