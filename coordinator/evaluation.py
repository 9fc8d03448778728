"""One evaluation under way: the outputs of its rows, from all replicas, until each is there once."""

import math
from collections.abc import Iterable

from coordinator.records import EvaluationRecord
from coordinator.scoring import EvaluationError, Row, Scoring


class Evaluation:
    """Collects the rows of one split, in any order."""

    def __init__(self, *, split: str, num_rows: int, scoring: Scoring) -> None:
        self.split = split
        """Name of the split."""
        self._num_rows = num_rows
        self._scoring = scoring
        self._rows: dict[int, Row] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows.

        Raises:
            EvaluationError: a row came before, or is outside the split.
        """
        for row in rows:
            if row.row_id in self._rows:
                raise EvaluationError(f"row {row.row_id} of the evaluation was reported twice")
            if row.row_id >= self._num_rows:
                raise EvaluationError(f"row {row.row_id} was reported, but the split has {self._num_rows} rows")
            self._rows[row.row_id] = row

    @property
    def rows(self) -> list[Row]:
        """The rows of the split in its order.

        Raises:
            EvaluationError: rows are missing.
        """
        if len(self._rows) != self._num_rows:
            missing = next(row for row in range(self._num_rows) if row not in self._rows)
            raise EvaluationError(
                f"the evaluation has {len(self._rows)} of {self._num_rows} rows; row {missing} was not reported"
            )
        return [self._rows[row_id] for row_id in sorted(self._rows)]

    def record(self, *, step: int) -> EvaluationRecord:
        """Return the scores of all rows, which weights of training step ``step`` were asked for.

        Takes time: call it off the event loop.

        Raises:
            EvaluationError: rows are missing, or the rows have not all as many outputs as they should.
        """
        rows = self.rows
        if all(row.label is None for row in rows):
            reason = "the split has no labels"
            return EvaluationRecord(
                step=step, split=self.split, examples=len(rows), loss=None, metrics=(), reason=reason
            )
        loss, metrics = self._scoring.score(rows)
        reasons = [reason for _, value, reason in metrics if value is None]
        return EvaluationRecord(
            step=step,
            split=self.split,
            examples=len(rows),
            loss=loss if math.isfinite(loss) else None,
            metrics=tuple((name, value) for name, value, _ in metrics),
            reason="; ".join(dict.fromkeys(reasons)) or None,
        )
