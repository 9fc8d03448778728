"""The rows of one microbatch, as a model reads them."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Microbatch:
    """Columns of one microbatch; a column that this worker's stages do not need is None.

    B rows, L positions.
    """

    row_ids: tuple[int, ...]
    input_ids_BL: torch.Tensor | None
    token_type_ids_BL: torch.Tensor | None
    attention_mask_BL: torch.Tensor
    """1 where a position counts, 0 where it pads; every stage needs it."""
    labels: torch.Tensor | None
    """Shape (B,), or (B, L) of a token-level objective."""

    def to(self, device: torch.device) -> "Microbatch":
        """Return the columns on ``device``; the same object where they are there already."""
        if self.attention_mask_BL.device == device:
            return self
        ids, types, mask, labels = (
            column.to(device) if column is not None else None
            for column in (self.input_ids_BL, self.token_type_ids_BL, self.attention_mask_BL, self.labels)
        )
        assert mask is not None
        return Microbatch(self.row_ids, ids, types, mask, labels)
