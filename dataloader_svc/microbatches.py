"""Microbatches as dense columns, and their shapes without the columns. Pure.

B rows of a microbatch, L positions of its width.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataloader_svc.grid import Grid
from dataloader_svc.settings import Padding
from dataloader_svc.sharding import RowNumbers, StepRows
from dataloader_svc.targets import Labels, Target
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
    values: Labels
    """Shape (B, L), or (B,) for labels of whole rows; little endian on every machine."""


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
    num_counted: int
    """Labels that the loss counts."""


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
    def denominator(self) -> int:
        """Labels of the global batch that the loss counts; 1 where there are none, because it divides."""
        return max(1, sum(shape.num_counted for shapes in self.replicas for shape in shapes))

    @property
    def num_positions(self) -> int:
        """All positions, padding included."""
        return sum(shape.num_rows * shape.width for shapes in self.replicas for shape in shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batcher:
    """Cuts microbatches out of one tokenised split."""

    rows: TokenisedRows
    target: Target
    """What is to be predicted of these rows."""
    padding: Padding
    max_length: int
    """Width of every microbatch where ``padding`` says so."""
    record_rows: bool
    """Whether shapes name their rows."""

    def shape(self, step: StepRows) -> StepShape:
        """Return the shapes of one step; no column is built."""
        replicas = tuple(tuple(self._shape(row_ids) for row_ids in microbatches) for microbatches in step.replicas)
        return StepShape(step=step.step, epoch=step.epoch, replicas=replicas)

    def microbatch(
        self, index: int, row_ids: RowNumbers, columns: Sequence[ColumnName], *, pass_name: str
    ) -> Microbatch:
        """Return one microbatch with its columns in the order of ``columns``, but labels where the split has none.

        ``pass_name`` tells one pass over the rows from the next.
        """
        if len(row_ids) == 0:
            return Microbatch(index=index, row_ids=row_ids, columns=())
        lengths_B = self.rows.lengths_of(row_ids)
        grid = Grid.of(self.rows.starts[row_ids], lengths_B, width=self._width(lengths_B))
        built: dict[ColumnName, Labels | None] = {}
        if not {ColumnName.INPUT_IDS, ColumnName.LABELS}.isdisjoint(columns):
            input_ids_BL, labels = self.target.columns(row_ids, grid, pass_name=pass_name)
            built = {ColumnName.INPUT_IDS: input_ids_BL, ColumnName.LABELS: labels}
        if ColumnName.TOKEN_TYPE_IDS in columns:
            built[ColumnName.TOKEN_TYPE_IDS] = grid.fill(self.rows.token_types_T, 0)
        if ColumnName.ATTENTION_MASK in columns:
            built[ColumnName.ATTENTION_MASK] = grid.mask_BL.astype(np.int64)
        found = ((name, built[name]) for name in columns)
        there = tuple(_column(name, values) for name, values in found if values is not None)
        return Microbatch(index=index, row_ids=row_ids, columns=there)

    def _shape(self, row_ids: RowNumbers) -> MicrobatchShape:
        lengths_B = self.rows.lengths_of(row_ids)
        return MicrobatchShape(
            num_rows=len(row_ids),
            width=self._width(lengths_B),
            row_ids=tuple(row_ids.tolist()) if self.record_rows else (),
            num_tokens=int(lengths_B.sum()),
            num_counted=self.target.num_counted(row_ids),
        )

    def _width(self, lengths_B: npt.NDArray[np.int64]) -> int:
        if len(lengths_B) == 0:
            return 0
        if self.padding is Padding.MAX_LENGTH:
            return self.max_length
        return max(1, int(lengths_B.max()))  # a tokenizer without special tokens leaves nothing of an empty sentence


def _column(name: ColumnName, values: Labels) -> Column:
    if values.dtype == np.float32:
        return Column(name=name, values=values.astype("<f4"))
    return Column(name=name, values=values.astype("<i8"))
