"""The state that all workers have alike, because only the vote on a step changes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What decides the next step beside weights and moments; kept with them in a checkpoint."""

    updates_applied: int
    """Optimizer updates so far; they decide the learning rate."""
    loss_scale: float | None = None
    """What the loss of the next step is multiplied by; fp16 only."""
    clean_steps: int = 0
    """Steps without overflow since the loss scale changed last."""
