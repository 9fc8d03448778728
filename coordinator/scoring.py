"""The loss and the metrics of evaluated rows, each computed once over all of them.

Metrics are those of GLUE (Wang et al., "GLUE: A Multi-Task Benchmark and Analysis Platform", ICLR 2019, table 1),
by scikit-learn and scipy, which are imported when they are first needed. What is undefined has a reason, not a value.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.choices import Objective, Task

Metric = tuple[str, float | None, str]
"""Name, value, and why there is none."""

_METRICS: Mapping[Task, tuple[str, ...]] = {
    Task.COLA: ("matthews_correlation",),
    Task.MRPC: ("accuracy", "f1"),
    Task.QQP: ("accuracy", "f1"),
    Task.STSB: ("pearson", "spearmanr"),
}
"""By task; accuracy alone for the others."""
_POSITIVE: Mapping[Task, str] = {Task.MRPC: "equivalent", Task.QQP: "duplicate"}
"""The label that F1 is about."""
_LARGEST_EXPONENT = math.log(sys.float_info.max)
_NOT_FINITE = "an output was not a finite number"


class EvaluationError(ValueError):
    """Rows that cannot be evaluated."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row's outputs, as the last stage gave them."""

    row_id: int
    outputs: tuple[float, ...]
    """Logits of its classes, or the number; where tokens are predicted, the sum of their losses alone."""
    label: float | None
    """Its class, or the number; where tokens are predicted, how many of them count. None where the split has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How the rows of a job are scored."""

    task: Task
    objective: Objective
    labels: tuple[str, ...]
    """Names in the order of the ids that rows have; empty where numbers or tokens are predicted."""

    def score(self, rows: Sequence[Row]) -> tuple[float, list[Metric]]:
        """Return the mean loss, not finite where there is none, and the metrics.

        Raises:
            EvaluationError: rows have not as many outputs as they should.
        """
        labels = [row.label for row in rows if row.label is not None]
        if len(labels) < len(rows):
            raise EvaluationError("a row of the evaluation has no label")
        if self.objective.is_token_level:
            return _token_scores(rows, labels)
        if len({len(row.outputs) for row in rows}) > 1:
            raise EvaluationError("the rows of the evaluation have different numbers of outputs")
        outputs_RC = np.array([row.outputs for row in rows], dtype=np.float64)
        if not np.isfinite(outputs_RC).all():
            return math.nan, [(name, None, _NOT_FINITE) for name in self._names]
        labels_R = np.array(labels, dtype=np.float64)
        if self.task is Task.STSB:
            return _number_scores(outputs_RC, labels_R)
        ids_R, predicted_R = labels_R.astype(np.int64), outputs_RC.argmax(axis=1)
        scores = [self._class_score(name, predicted_R, ids_R) for name in self._names]
        return mean_cross_entropy(outputs_RC, ids_R), scores

    @property
    def _names(self) -> tuple[str, ...]:
        return _METRICS.get(self.task, ("accuracy",))

    def _class_score(self, name: str, predicted_R: NDArray[np.int64], labels_R: NDArray[np.int64]) -> Metric:
        from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef  # noqa: PLC0415  # takes seconds

        match name:
            case "f1":
                label = _POSITIVE[self.task]
                positive = self.labels.index(label)
                if not ((labels_R == positive).any() or (predicted_R == positive).any()):
                    return name, None, f"f1 is undefined: no row is or was predicted to be {label}"
                return name, float(f1_score(labels_R == positive, predicted_R == positive)), ""
            case "matthews_correlation":
                for which, of in (("are", labels_R), ("were predicted to be", predicted_R)):
                    if len(np.unique(of)) == 1:
                        return name, None, f"{name} is undefined: all rows {which} of one label"
                return name, float(matthews_corrcoef(labels_R, predicted_R)), ""
            case _:
                return name, float(accuracy_score(labels_R, predicted_R)), ""


def warm() -> None:
    """Import what scores need; takes seconds, so it is done while the workers train."""
    import scipy.stats  # noqa: F401, PLC0415  # late on purpose
    import sklearn.metrics  # noqa: F401, PLC0415


def mean_cross_entropy(outputs_RC: NDArray[np.float64], labels_R: NDArray[np.int64]) -> float:
    """Return the mean over R rows of the cross entropy of C outputs, in float64."""
    shifted_RC = outputs_RC - outputs_RC.max(axis=1, keepdims=True)
    log_total_R = np.log(np.exp(shifted_RC).sum(axis=1))
    chosen_R = np.take_along_axis(shifted_RC, labels_R[:, None], axis=1)[:, 0]
    return math.fsum((log_total_R - chosen_R).tolist()) / len(labels_R)


def _number_scores(outputs_RC: NDArray[np.float64], labels_R: NDArray[np.float64]) -> tuple[float, list[Metric]]:
    """Return the mean squared error and the correlations of one number a row.

    Raises:
        EvaluationError: rows have several outputs.
    """
    if outputs_RC.shape[1] != 1:
        raise EvaluationError(f"the rows have {outputs_RC.shape[1]} outputs, needs one number of each")
    from scipy.stats import pearsonr, spearmanr  # noqa: PLC0415  # takes a second

    predicted_R = outputs_RC[:, 0]
    loss = math.fsum(np.square(predicted_R - labels_R).tolist()) / len(labels_R)
    for which, of in (("labels", labels_R), ("predictions", predicted_R)):
        if len(np.unique(of)) == 1:
            reason = f"is undefined: all {which} are the same"
            return loss, [(name, None, f"{name} {reason}") for name in _METRICS[Task.STSB]]
    pearson, spearman = pearsonr(predicted_R, labels_R).statistic, spearmanr(predicted_R, labels_R).statistic
    return loss, [("pearson", float(pearson), ""), ("spearmanr", float(spearman), "")]


def _token_scores(rows: Sequence[Row], counts: Sequence[float]) -> tuple[float, list[Metric]]:
    """Return the mean loss over all tokens that count, and its exponential, the perplexity.

    Raises:
        EvaluationError: a row has not exactly one output.
    """
    for row in rows:
        if len(row.outputs) != 1:
            raise EvaluationError(f"row {row.row_id} has {len(row.outputs)} outputs, needs the loss of its tokens only")
    num_tokens = sum(map(round, counts))
    if num_tokens == 0:
        return math.nan, [("perplexity", None, "no token of the split counts")]
    losses = [row.outputs[0] for row in rows]
    if not all(map(math.isfinite, losses)):
        return math.nan, [("perplexity", None, _NOT_FINITE)]
    loss = math.fsum(losses) / num_tokens
    if loss > _LARGEST_EXPONENT:
        return loss, [("perplexity", None, "perplexity is too large a number")]
    return loss, [("perplexity", math.exp(loss), "")]
