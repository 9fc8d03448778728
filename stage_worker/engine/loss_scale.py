"""The factor that keeps fp16 gradients out of underflow, the same on every worker.

Micikevicius et al., "Mixed Precision Training" (ICLR 2018), section 3.2.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScaleSettings:
    """How the factor changes; the meaning of each is that of the job file."""

    initial: float
    growth_factor: float
    backoff_factor: float
    growth_interval: int
    """Clean steps in a row after which the factor grows."""
    min: float
    max: float


class LossScale:
    """The factor as a state that only the vote of a step changes, so it is the same on every worker."""

    def __init__(self, settings: LossScaleSettings) -> None:
        self._settings = settings
        self.factor = settings.initial
        """What the loss of the next step is multiplied by."""
        self.clean_steps = 0
        """Steps without overflow since the factor changed last."""

    def restore(self, *, factor: float, clean_steps: int) -> None:
        """Go on where another left off."""
        self.factor, self.clean_steps = factor, clean_steps

    @property
    def is_lowest(self) -> bool:
        """Whether an overflow cannot lower the factor any more."""
        return self.factor <= self._settings.min

    def note_overflow(self) -> None:
        """Lower the factor after a step whose gradients were not finite."""
        self.factor = max(self.factor * self._settings.backoff_factor, self._settings.min)
        self.clean_steps = 0

    def note_update(self) -> None:
        """Count a clean step; raise the factor after enough of them."""
        self.clean_steps += 1
        if self.clean_steps >= self._settings.growth_interval:
            self.factor = min(self.factor * self._settings.growth_factor, self._settings.max)
            self.clean_steps = 0
