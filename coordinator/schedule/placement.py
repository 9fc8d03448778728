"""Which worker of a replica holds which stage."""

from dataclasses import dataclass

from coordinator.schedule.actions import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Looping placement: stage ``s`` lies on worker ``s % num_workers``.

    Stages and workers are counted from 0 within one replica; a worker's number here is its pp rank.

    Raises:
        PlanError: A count is below 1.
    """

    num_workers: int
    num_chunks: int = 1
    """Stages on each worker."""

    def __post_init__(self) -> None:
        for name, count in (("num_workers", self.num_workers), ("num_chunks", self.num_chunks)):
            if count < 1:
                raise PlanError(f"{name} is {count}, need at least 1")

    @property
    def num_stages(self) -> int:
        """Stages of the whole model."""
        return self.num_workers * self.num_chunks

    def worker_of(self, stage: int) -> int:
        """Return the worker that holds ``stage``.

        Raises:
            PlanError: There is no such stage.
        """
        if not 0 <= stage < self.num_stages:
            raise PlanError(f"stage {stage} is outside [0, {self.num_stages})")
        return stage % self.num_workers

    def stages_of(self, worker: int) -> tuple[int, ...]:
        """Return the stages that ``worker`` holds, ascending.

        Raises:
            PlanError: There is no such worker.
        """
        if not 0 <= worker < self.num_workers:
            raise PlanError(f"worker {worker} is outside [0, {self.num_workers})")
        return tuple(range(worker, self.num_stages, self.num_workers))
