"""What is told of a run's workers: their places, and how they are getting on."""

import time
from collections import defaultdict
from collections.abc import Iterable

from coordinator.events import StepResult
from coordinator.planning import JobPlan
from coordinator.records import JobState, WorkerRecord
from coordinator.run_state import Life, Place, RunState


def places_of(plan: JobPlan, slots: Iterable[tuple[str, str]]) -> tuple[Place, ...]:
    """Return the place of each worker on the slots that the job got, agent and host of each, worker 0 on the first."""
    return tuple(
        Place(
            worker=worker,
            dp_rank=plan.topology.coordinates(worker).dp_rank,
            stages=tuple(part.stage for part in plan.slices_of(worker)),
            agent=agent,
            host=host,
        )
        for worker, (agent, host) in enumerate(slots)
    )


class Figures:
    """Adds up what workers report, to be shown and kept."""

    def __init__(self, num_workers: int) -> None:
        self._busy_seconds: list[defaultdict[int, float]] = [defaultdict(float) for _ in range(num_workers)]
        """Per worker, by stage."""
        self._idle_seconds = [0.0] * num_workers
        self._last_progress: list[float | None] = [None] * num_workers

    def add(self, result: StepResult) -> None:
        """Take a step report's shares of time."""
        for stage, seconds in result.busy_seconds:
            self._busy_seconds[result.worker][stage] += seconds
        self._idle_seconds[result.worker] += result.idle_seconds

    def heard(self, worker: int) -> None:
        """A worker got something done just now."""
        self._last_progress[worker] = time.time()

    def records(self, state: RunState) -> tuple[WorkerRecord, ...]:
        """Return how all workers are getting on."""
        return tuple(
            WorkerRecord(
                worker=place.worker,
                stages=place.stages,
                dp_rank=place.dp_rank,
                host=place.host,
                agent=place.agent,
                state=_life(state, member.life),
                pid=member.pid,
                log=member.log,
                parameters=member.parameters,
                peak_bytes=member.peak_bytes,
                last_progress=self._last_progress[place.worker],
                busy_seconds=sum(self._busy_seconds[place.worker].values()),
                idle_seconds=self._idle_seconds[place.worker],
                stage_busy_seconds=tuple(self._busy_seconds[place.worker][stage] for stage in place.stages),
            )
            for place, member in zip(state.setting.places, state.members, strict=True)
        )


def _life(state: RunState, life: Life) -> str:
    started = state.state in (JobState.RUNNING, JobState.CANCELLING)
    return "running" if life is Life.READY and started else life.value
