"""Which worker of a job is which part of the model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """Place of one worker."""

    dp_rank: int
    """Replica, from 0."""
    pp_rank: int
    """Place in the pipeline of its replica, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How the workers of a job are laid out; counts of at least 1.

    worker = dp_rank x pp + pp_rank, so the workers of a replica stand side by side.

    Raises:
        ValueError: A count is below 1, or ``tp`` is not 1.
    """

    pp: int
    """Workers of one pipeline."""
    dp: int
    """Replicas."""
    tp: int = 1
    """Workers that share every layer."""

    def __post_init__(self) -> None:
        for name, count in (("pp", self.pp), ("dp", self.dp), ("tp", self.tp)):
            if count < 1:
                raise ValueError(f"{name} is {count}, need at least 1")
        if self.tp != 1:
            raise ValueError(f"tp is {self.tp}, which is not built; need 1")

    @property
    def num_workers(self) -> int:
        """All workers of the job."""
        return self.pp * self.dp * self.tp

    def worker_of(self, *, dp_rank: int, pp_rank: int) -> int:
        """Return the worker at a place.

        Raises:
            ValueError: There is no such place.
        """
        for name, rank, count in (("dp_rank", dp_rank, self.dp), ("pp_rank", pp_rank, self.pp)):
            if not 0 <= rank < count:
                raise ValueError(f"{name} {rank} is outside [0, {count})")
        return dp_rank * self.pp + pp_rank

    def coordinates(self, worker: int) -> Coordinates:
        """Return the place of a worker.

        Raises:
            ValueError: There is no such worker.
        """
        if not 0 <= worker < self.num_workers:
            raise ValueError(f"worker {worker} is outside [0, {self.num_workers})")
        dp_rank, pp_rank = divmod(worker, self.pp)
        return Coordinates(dp_rank=dp_rank, pp_rank=pp_rank)
