"""What a model is to predict of the rows of a split: one target for each objective. Pure.

B rows of a microbatch, L positions of its width.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dataloader_svc.grid import Grid
from dataloader_svc.masking import IGNORED, Masking
from dataloader_svc.settings import DataSettings, Objective
from dataloader_svc.sharding import RowNumbers
from dataloader_svc.tokens import TokenisedRows, require_mask_token

Integers: TypeAlias = npt.NDArray[np.int64]
Labels: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float32]


class Target(Protocol):
    """Labels of the rows of one split, and the ids that the model sees for them."""

    def num_counted(self, row_ids: RowNumbers) -> int:
        """Return how many labels of these rows the loss counts, without making one."""

    def columns(self, row_ids: RowNumbers, grid: Grid, *, pass_name: str) -> tuple[Integers, Labels | None]:
        """Return the ids, shape (B, L), and the labels, None where the split has none.

        ``pass_name`` tells one pass over the rows from the next.
        """


@dataclass(frozen=True, slots=True)
class RowLabels:
    """Classification: the label of each row, shape (B,)."""

    rows: TokenisedRows

    def num_counted(self, row_ids: RowNumbers) -> int:
        """See `Target`."""
        return len(row_ids)

    def columns(self, row_ids: RowNumbers, grid: Grid, *, pass_name: str) -> tuple[Integers, Labels | None]:
        """See `Target`."""
        labels_N = self.rows.labels_N
        return _input_ids(self.rows, grid), None if labels_N is None else labels_N[row_ids]


@dataclass(frozen=True, slots=True)
class NextTokens:
    """Causal language modelling: at each position the id of the next one, shape (B, L)."""

    rows: TokenisedRows

    def num_counted(self, row_ids: RowNumbers) -> int:
        """See `Target`; a row's last token has no next one."""
        return int(np.maximum(self.rows.lengths_of(row_ids) - 1, 0).sum())

    def columns(self, row_ids: RowNumbers, grid: Grid, *, pass_name: str) -> tuple[Integers, Labels | None]:
        """See `Target`."""
        ids_BL = _input_ids(self.rows, grid)
        labels_BL = np.full_like(ids_BL, IGNORED)
        labels_BL[:, :-1] = np.where(grid.mask_BL[:, 1:], ids_BL[:, 1:], IGNORED)
        return ids_BL, labels_BL


@dataclass(frozen=True, slots=True)
class HiddenTokens:
    """Masked language modelling: the true ids of hidden tokens, shape (B, L)."""

    rows: TokenisedRows
    masking: Masking

    def num_counted(self, row_ids: RowNumbers) -> int:
        """See `Target`."""
        return int(self.masking.num_chosen(self.rows.num_maskable_N[row_ids]).sum())

    def columns(self, row_ids: RowNumbers, grid: Grid, *, pass_name: str) -> tuple[Integers, Labels | None]:
        """See `Target`."""
        maskable_BL = grid.fill(self.rows.special_T, 1) == 0
        return self.masking.hide(_input_ids(self.rows, grid), maskable_BL, row_ids=row_ids, pass_name=pass_name)


def target_of(settings: DataSettings, rows: TokenisedRows) -> Target:
    """Return what a job's model is to predict of these rows.

    Raises:
        TokenizerError: tokens are to be hidden, and the tokenizer has no mask token.
    """
    match settings.objective:
        case Objective.CLASSIFICATION:
            return RowLabels(rows)
        case Objective.CAUSAL_LM:
            return NextTokens(rows)
        case Objective.MASKED_LM:
            masking = Masking(
                probability=settings.mlm_probability,
                seed=settings.seed,
                mask_token_id=require_mask_token(rows.mask_token_id, tokenizer=settings.tokenizer),
                replacement_ids_V=rows.ordinary_ids_V,
            )
            return HiddenTokens(rows, masking)


def _input_ids(rows: TokenisedRows, grid: Grid) -> Integers:
    return grid.fill(rows.input_ids_T, rows.pad_token_id)
