"""The learning rate as a pure function of the updates applied so far."""

import enum
from dataclasses import dataclass


class LearningRateSchedule(enum.StrEnum):
    """How the rate changes over a job; the value is its name in the job file."""

    LINEAR = "linear"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRate:
    """The rate of each update of one job, the same on every worker."""

    base: float
    schedule: LearningRateSchedule
    warmup_fraction: float
    """Share of ``total_steps`` over which a linear schedule rises from 0."""
    total_steps: int
    """Optimizer steps that are planned."""

    def at(self, updates_applied: int) -> float:
        """Return the rate of the update that follows ``updates_applied`` others."""
        if self.schedule is LearningRateSchedule.CONSTANT:
            return self.base
        warmup = int(self.warmup_fraction * self.total_steps)
        if updates_applied < warmup:
            return self.base * (updates_applied / warmup)
        return self.base * (max(self.total_steps - updates_applied, 0) / max(self.total_steps - warmup, 1))
