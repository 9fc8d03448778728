"""Microbatches as dense columns, and their shapes without the columns. Pure.

B rows of a microbatch, L positions of its width.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataloader_svc.errors import RequestError
from dataloader_svc.settings import Padding
from dataloader_svc.sharding import RowNumbers, StepRows
from dataloader_svc.tokens import TokenisedRows


class ColumnName(enum.StrEnum):
    """The columns that can be asked for."""

    INPUT_IDS = "input_ids"
    TOKEN_TYPE_IDS = "token_type_ids"
    ATTENTION_MASK = "attention_mask"
    LABELS = "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One tensor of a microbatch."""

    name: ColumnName
    values: npt.NDArray[np.int64]
    """Shape (B, L), or (B,) for labels; little endian on every machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Microbatch:
    """The rows of one microbatch; one without rows has no columns."""

    index: int
    row_ids: RowNumbers
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchShape:
    """Rows and width of one microbatch; both 0 where it has no rows."""

    num_rows: int
    width: int
    row_ids: tuple[int, ...]
    """Data rows; empty where the job does not record them."""
    num_tokens: int
    """Positions with mask 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """Rows and widths of one step over all replicas."""

    step: int
    epoch: int
    replicas: tuple[tuple[MicrobatchShape, ...], ...]

    @property
    def num_rows(self) -> int:
        """Rows of the global batch."""
        return sum(shape.num_rows for shapes in self.replicas for shape in shapes)

    @property
    def num_tokens(self) -> int:
        """Positions with mask 1."""
        return sum(shape.num_tokens for shapes in self.replicas for shape in shapes)

    @property
    def num_positions(self) -> int:
        """All positions, padding included."""
        return sum(shape.num_rows * shape.width for shapes in self.replicas for shape in shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batcher:
    """Cuts microbatches out of one tokenised split."""

    rows: TokenisedRows
    padding: Padding
    max_length: int
    """Width of every microbatch where ``padding`` says so."""
    record_rows: bool
    """Whether shapes name their rows."""

    def shape(self, step: StepRows) -> StepShape:
        """Return the shapes of one step; no column is built."""
        replicas = tuple(tuple(self._shape(row_ids) for row_ids in microbatches) for microbatches in step.replicas)
        return StepShape(step=step.step, epoch=step.epoch, replicas=replicas)

    def microbatch(self, index: int, row_ids: RowNumbers, columns: Sequence[ColumnName]) -> Microbatch:
        """Return one microbatch with its columns in the order of ``columns``.

        Raises:
            RequestError: labels of a split without labels are asked for.
        """
        if len(row_ids) == 0:
            return Microbatch(index=index, row_ids=row_ids, columns=())
        lengths_B = self.rows.lengths_of(row_ids)
        positions_L = np.arange(self._width(lengths_B))
        mask_BL = positions_L < lengths_B[:, None]
        source_BL = np.where(mask_BL, self.rows.starts[row_ids][:, None] + positions_L, 0)

        def values(name: ColumnName) -> npt.NDArray[np.int64]:
            match name:
                case ColumnName.INPUT_IDS:
                    return np.where(mask_BL, self.rows.input_ids_T[source_BL], self.rows.pad_token_id)
                case ColumnName.TOKEN_TYPE_IDS:
                    return np.where(mask_BL, self.rows.token_types_T[source_BL], 0)
                case ColumnName.ATTENTION_MASK:
                    return mask_BL.astype(np.int64)
                case ColumnName.LABELS:
                    return self._labels()[row_ids]

        built = tuple(Column(name=name, values=values(name).astype("<i8")) for name in columns)
        return Microbatch(index=index, row_ids=row_ids, columns=built)

    def _shape(self, row_ids: RowNumbers) -> MicrobatchShape:
        lengths_B = self.rows.lengths_of(row_ids)
        return MicrobatchShape(
            num_rows=len(row_ids),
            width=self._width(lengths_B),
            row_ids=tuple(row_ids.tolist()) if self.record_rows else (),
            num_tokens=int(lengths_B.sum()),
        )

    def _width(self, lengths_B: npt.NDArray[np.int64]) -> int:
        if len(lengths_B) == 0:
            return 0
        return self.max_length if self.padding is Padding.MAX_LENGTH else int(lengths_B.max())

    def _labels(self) -> npt.NDArray[np.int64]:
        if self.rows.labels_N is None:
            raise RequestError("column 'labels' was asked for, but the split has no labels")
        return self.rows.labels_N
