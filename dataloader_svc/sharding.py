"""Which rows belong to which microbatch: pure arithmetic over row numbers.

Everything here is a function of its arguments alone, so a restarted service,
another replica and a test all get the same rows.
"""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

RowNumbers: TypeAlias = npt.NDArray[np.int64]
"""Data rows, 0-based, in file order; shape (rows,)."""


Grouping: TypeAlias = Callable[[RowNumbers, int, int], tuple[tuple[RowNumbers, ...], ...]]
"""(rows of a global batch, replicas, microbatches of each) -> rows of each microbatch of each replica."""


class StepRangeError(ValueError):
    """A step outside the phase was asked for."""


def split_evenly(count: int, parts: int) -> tuple[int, ...]:
    """Return ``parts`` sizes that add up to ``count``, differ by at most one and come larger first.

    >>> split_evenly(10, 4)
    (3, 3, 2, 2)
    """
    size, larger = divmod(count, parts)
    return (size + 1,) * larger + (size,) * (parts - larger)


def cut(rows: RowNumbers, parts: int) -> tuple[RowNumbers, ...]:
    """Return ``rows`` as ``parts`` contiguous pieces with the sizes of `split_evenly`; pieces may be empty."""
    ends = np.cumsum(split_evenly(len(rows), parts))
    return tuple(np.split(rows, ends[:-1]))


def in_order(rows: RowNumbers, num_replicas: int, num_microbatches: int) -> tuple[tuple[RowNumbers, ...], ...]:
    """Group rows as they come: sizes differ by at most one, larger first; see `Grouping`."""
    return tuple(cut(share, num_microbatches) for share in cut(rows, num_replicas))


def microbatches_for_size(*, global_batch_size: int, num_replicas: int, num_slices: int, microbatch_size: int) -> int:
    """Return how many microbatches a slice of one replica needs so that none has more than ``microbatch_size`` rows."""
    return -(-global_batch_size // (num_replicas * num_slices * microbatch_size))


@functools.lru_cache(maxsize=8)
def row_order(*, num_rows: int, seed: int, epoch: int) -> RowNumbers:
    """Return the shuffled order of ``num_rows`` rows in one epoch; read-only.

    The stream of `numpy.random.RandomState` is frozen (NEP 19), so the order
    outlives numpy releases, which `default_rng` does not promise.
    """
    digest = hashlib.blake2b(f"row order, seed {seed}, epoch {epoch}".encode(), digest_size=32).digest()
    generator = np.random.RandomState(np.frombuffer(digest, dtype="<u4"))
    order = generator.permutation(num_rows).astype(np.int64)
    order.flags.writeable = False
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """The rows of one step."""

    step: int
    """From 1."""
    epoch: int
    """From 0."""
    replicas: tuple[tuple[RowNumbers, ...], ...]
    """Rows of each microbatch of each dp rank; a microbatch may have none."""

    @property
    def num_rows(self) -> int:
        """Rows of the global batch."""
        return sum(len(rows) for microbatches in self.replicas for rows in microbatches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How one split's rows fall into steps, replicas and microbatches."""

    num_rows: int
    """Rows of the split."""
    batch_size: int
    """Rows of one step over all replicas; the last step of an epoch may have fewer."""
    num_replicas: int
    """Size of the dp group."""
    num_microbatches: int
    """Microbatches of one replica in one step, over all its accumulation slices."""
    seed: int | None
    """Seed of the row order; None for file order."""
    drop_last: bool
    """Whether a last batch short of rows is left out."""
    grouping: Grouping = in_order
    """How the rows of a global batch fall into microbatches."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps that one pass over the rows takes."""
        full, rest = divmod(self.num_rows, self.batch_size)
        return full if self.drop_last or rest == 0 else full + 1

    def step(self, step: int) -> StepRows:
        """Return the rows of one step.

        Raises:
            StepRangeError: ``step`` is below 1, or an epoch has no steps.
        """
        if step < 1:
            raise StepRangeError(f"step is {step}, steps count from 1")
        if self.steps_per_epoch == 0:
            raise StepRangeError(f"{self.num_rows} rows make no batch of {self.batch_size}")
        epoch, index = divmod(step - 1, self.steps_per_epoch)
        first = index * self.batch_size
        rows = self._order(epoch)[first : first + self.batch_size]
        replicas = self.grouping(rows, self.num_replicas, self.num_microbatches)
        return StepRows(step=step, epoch=epoch, replicas=replicas)

    def _order(self, epoch: int) -> RowNumbers:
        if self.seed is None:
            return np.arange(self.num_rows, dtype=np.int64)
        return row_order(num_rows=self.num_rows, seed=self.seed, epoch=epoch)
