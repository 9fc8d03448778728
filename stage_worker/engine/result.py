"""What a worker knows at the end of a step."""

from dataclasses import dataclass, field

from stage_worker.engine.commands import Phase
from stage_worker.engine.exchange import Transfer


@dataclass(frozen=True, slots=True)
class RowOutput:
    """What the model makes of one row of an evaluation."""

    row_id: int
    outputs: tuple[float, ...]
    """One number a class; of a token-level objective one: the sum of its counted tokens' losses."""
    label: float | None
    """None where the split has none; of a token-level objective the number of its counted tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One finished step of this worker."""

    phase: Phase
    step: int
    last_seq: int
    """Sequence number of the last command that was done."""
    loss_sums: tuple[float, ...] = ()
    """Sum of each microbatch's losses, ascending, 0 where it has no rows; on the last stage's worker only."""
    grad_norm: float | None = None
    """Global norm before clipping; None in an evaluation and where the step was skipped."""
    learning_rate: float = 0.0
    """What the update used; 0 in an evaluation."""
    loss_scale: float | None = None
    """What the loss was multiplied by before its backward; fp16 only."""
    skipped: bool = False
    """Whether the vote kept the weights as they were."""
    peak_in_flight: int = 0
    """Most microbatches at once between the start of their forward and the end of their backward, added over stages."""
    sent_bytes: int = 0
    """Bytes of the activations and gradients that were sent."""
    received_bytes: int = 0
    """Bytes of the activations and gradients that were received."""
    transfers: tuple[Transfer, ...] = field(default=(), compare=False)
    """Activations and gradients that crossed to or from other workers."""
    rows: tuple[RowOutput, ...] = ()
    """Outputs of an evaluation in the order they were computed; on the last stage's worker only."""
