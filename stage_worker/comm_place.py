"""Where a worker stands among the workers of an attempt."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker stands in the grid of an attempt."""

    worker: int
    pp: int
    dp: int

    @property
    def num_workers(self) -> int:
        """Workers of the attempt."""
        return self.pp * self.dp

    @property
    def pp_rank(self) -> int:
        """Place in the pipeline."""
        return self.worker % self.pp

    @property
    def dp_rank(self) -> int:
        """Replica."""
        return self.worker // self.pp

    @property
    def replica(self) -> tuple[int, ...]:
        """Workers of this one's pipeline, by pp rank."""
        return tuple(range(self.dp_rank * self.pp, (self.dp_rank + 1) * self.pp))

    @property
    def twins(self) -> tuple[int, ...]:
        """Workers with the same stages, by dp rank."""
        return tuple(range(self.pp_rank, self.num_workers, self.pp))
