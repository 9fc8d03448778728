"""The figures of an evaluation, from the outputs of every row. scikit-learn is imported when it is first needed."""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.choices import Objective, Task
from coordinator.records import EvaluationRecord


class EvaluationError(ValueError):
    """Rows that cannot be evaluated."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row's outputs, as the last stage gave them."""

    row_id: int
    outputs: tuple[float, ...]
    """Logits of its classes; where tokens are predicted, the sum of their losses alone."""
    label: float
    """Its class; where tokens are predicted, how many of them count."""


class Evaluation:
    """Collects the rows of one evaluation, from all replicas, in any order."""

    def __init__(self, *, num_rows: int) -> None:
        self._num_rows = num_rows
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

    def record(self, *, task: Task, objective: Objective, step: int, split: str) -> EvaluationRecord:
        """Return the figures of all rows. Takes time: call it off the event loop.

        Raises:
            EvaluationError: rows are missing, or the rows have not all as many outputs as they should.
        """
        if len(self._rows) != self._num_rows:
            missing = next(row for row in range(self._num_rows) if row not in self._rows)
            raise EvaluationError(
                f"the evaluation has {len(self._rows)} of {self._num_rows} rows; row {missing} was not reported"
            )
        rows = [self._rows[row_id] for row_id in sorted(self._rows)]
        loss, metrics = _token_figures(rows) if objective.is_token_level else _class_figures(rows, task)
        reasons = [reason for _, value, reason in metrics if value is None]
        return EvaluationRecord(
            step=step,
            split=split,
            examples=len(rows),
            loss=loss if math.isfinite(loss) else None,
            metrics=tuple((name, value) for name, value, _ in metrics),
            reason="; ".join(dict.fromkeys(reasons)) or None,
        )


def warm() -> None:
    """Import what the figures need; takes seconds, so it is done while the workers train."""
    import sklearn.metrics  # noqa: F401, PLC0415  # late on purpose


Metric = tuple[str, float | None, str]
"""Name, value, and why there is none."""


def _token_figures(rows: Sequence[Row]) -> tuple[float, list[Metric]]:
    """Return the mean loss over all tokens that count, and its exponential, the perplexity.

    Raises:
        EvaluationError: a row has not exactly one output.
    """
    for row in rows:
        if len(row.outputs) != 1:
            raise EvaluationError(f"row {row.row_id} has {len(row.outputs)} outputs, needs the loss of its tokens only")
    num_tokens = sum(round(row.label) for row in rows)
    if num_tokens == 0:
        return math.nan, [("perplexity", None, "no token of the split counts")]
    losses = [row.outputs[0] for row in rows]
    if not all(map(math.isfinite, losses)):
        return math.nan, [("perplexity", None, _NOT_FINITE)]
    loss = math.fsum(losses) / num_tokens
    if loss > _LARGEST_EXPONENT:
        return loss, [("perplexity", None, "perplexity is too large a number")]
    return loss, [("perplexity", math.exp(loss), "")]


_LARGEST_EXPONENT = math.log(sys.float_info.max)
_NOT_FINITE = "an output was not a finite number"


def _class_figures(rows: Sequence[Row], task: Task) -> tuple[float, list[Metric]]:
    if len({len(row.outputs) for row in rows}) > 1:
        raise EvaluationError("the rows of the evaluation have different numbers of outputs")
    outputs_RC = np.array([row.outputs for row in rows], dtype=np.float64)
    if not np.isfinite(outputs_RC).all():
        return math.nan, [(name, None, _NOT_FINITE) for name in _names(task)]
    labels_R = np.array([row.label for row in rows], dtype=np.int64)
    return mean_cross_entropy(outputs_RC, labels_R), _metrics(task, outputs_RC.argmax(axis=1), labels_R)


def mean_cross_entropy(outputs_RC: NDArray[np.float64], labels_R: NDArray[np.int64]) -> float:
    """Return the mean over R rows of the cross entropy of C outputs, in float64."""
    shifted_RC = outputs_RC - outputs_RC.max(axis=1, keepdims=True)
    log_total_R = np.log(np.exp(shifted_RC).sum(axis=1))
    chosen_R = np.take_along_axis(shifted_RC, labels_R[:, None], axis=1)[:, 0]
    return math.fsum((log_total_R - chosen_R).tolist()) / len(labels_R)


def _metrics(task: Task, predicted_R: NDArray[np.int64], labels_R: NDArray[np.int64]) -> list[Metric]:
    from sklearn.metrics import accuracy_score, f1_score  # noqa: PLC0415  # takes seconds to import

    metrics: list[Metric] = [("accuracy", float(accuracy_score(labels_R, predicted_R)), "")]
    if "f1" in _names(task):
        if (labels_R == 1).any() or (predicted_R == 1).any():
            metrics.append(("f1", float(f1_score(labels_R, predicted_R)), ""))
        else:
            metrics.append(("f1", None, "f1 is undefined: no row is or was predicted to be of label 1"))
    return metrics


def _names(task: Task) -> tuple[str, ...]:
    """Return the GLUE metrics of a task."""
    return ("accuracy", "f1") if task is Task.MRPC else ("accuracy",)
