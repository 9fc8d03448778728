"""Which worker of a replica holds which stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.schedule.actions import PlanError


@dataclass(frozen=True, slots=True)
class Placement:
    """The worker of each stage, stage 0 first.

    Stages and workers are counted from 0 within one replica; a worker's number here is its pp rank.

    Raises:
        PlanError: There is no stage, a worker below the highest one holds none, or not all hold equally many.
    """

    worker_by_stage: tuple[int, ...]
    _stages_by_worker: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.worker_by_stage:
            raise PlanError("num_workers is 0, need at least 1")
        stages: list[list[int]] = [[] for _ in range(max(self.worker_by_stage) + 1)]
        for stage, worker in enumerate(self.worker_by_stage):
            stages[worker].append(stage)
        counts = [len(own) for own in stages]
        if min(counts) != max(counts):
            raise PlanError(
                f"worker {counts.index(max(counts))} holds {max(counts)} stages and worker "
                f"{counts.index(min(counts))} holds {min(counts)}, need equally many on each worker"
            )
        object.__setattr__(self, "_stages_by_worker", tuple(map(tuple, stages)))

    @property
    def num_workers(self) -> int:
        """Workers of one replica."""
        return len(self._stages_by_worker)

    @property
    def num_chunks(self) -> int:
        """Stages on each worker."""
        return len(self._stages_by_worker[0])

    @property
    def num_stages(self) -> int:
        """Stages of the whole model."""
        return len(self.worker_by_stage)

    def worker_of(self, stage: int) -> int:
        """Return the worker that holds ``stage``.

        Raises:
            PlanError: There is no such stage.
        """
        if not 0 <= stage < len(self.worker_by_stage):
            raise PlanError(f"stage {stage} is outside [0, {self.num_stages})")
        return self.worker_by_stage[stage]

    def stages_of(self, worker: int) -> tuple[int, ...]:
        """Return the stages that ``worker`` holds, ascending.

        Raises:
            PlanError: There is no such worker.
        """
        if not 0 <= worker < self.num_workers:
            raise PlanError(f"worker {worker} is outside [0, {self.num_workers})")
        return self._stages_by_worker[worker]


def looping(num_workers: int, num_chunks: int = 1) -> Placement:
    """Return the placement of stage ``s`` on worker ``s % num_workers``.

    Raises:
        PlanError: A count is below 1.
    """
    _check_counts(("num_workers", num_workers), ("num_chunks", num_chunks))
    return Placement(tuple(range(num_workers)) * num_chunks)


def v_shaped(num_workers: int) -> Placement:
    """Return the placement of two chunks in a V: worker ``w`` holds stages ``w`` and ``2 * num_workers - 1 - w``.

    Raises:
        PlanError: ``num_workers`` is below 1.
    """
    _check_counts(("num_workers", num_workers))
    down = tuple(range(num_workers))
    return Placement((*down, *reversed(down)))


def _check_counts(*counts: Sequence[object]) -> None:
    for name, count in counts:
        if not isinstance(count, int) or count < 1:
            raise PlanError(f"{name} is {count}, need at least 1")
