"""The loss of one microbatch, and what an evaluation tells of its rows.

B rows, L positions, C classes (of a token-level objective: entries of the vocabulary).
"""

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it

from stage_worker.engine.result import RowOutput
from stage_worker.models.microbatch import Microbatch

NOT_COUNTED = -100
"""Label of a position that has none."""


def loss_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum of the cross entropies in fp32; it is divided once, by the global count, as it goes back.

    Of labels that are numbers it is the sum of the squared errors.

    Args:
        logits: shape (B, C), or (B, L, C) of a token-level objective; (B, 1) where numbers are predicted.
        labels: shape (B,) or (B, L); positions labelled ``NOT_COUNTED`` do not count.
    """
    if labels.is_floating_point():
        return F.mse_loss(logits.float().squeeze(-1), labels, reduction="sum")
    flat = logits.reshape(-1, logits.shape[-1]).float()
    return F.cross_entropy(flat, labels.reshape(-1), ignore_index=NOT_COUNTED, reduction="sum")


def row_outputs(logits: torch.Tensor, batch: Microbatch) -> tuple[RowOutput, ...]:
    """Return what is told of each row: its logits and label, if it has one; or its tokens' loss and their number."""
    labels: list[float | None]
    if batch.labels is None:
        outputs, labels = logits.float().tolist(), [None] * len(batch.row_ids)
    elif batch.labels.dim() == 1:
        outputs, labels = logits.float().tolist(), [float(label) for label in batch.labels.tolist()]
    else:
        losses_BL = F.cross_entropy(
            logits.float().transpose(1, 2), batch.labels, ignore_index=NOT_COUNTED, reduction="none"
        )
        outputs = losses_BL.sum(dim=1, keepdim=True).tolist()
        labels = [float(count) for count in (batch.labels != NOT_COUNTED).sum(dim=1).tolist()]
    return tuple(
        RowOutput(row, tuple(values), label) for row, values, label in zip(batch.row_ids, outputs, labels, strict=True)
    )
