"""GLUE's metrics over all rows at once; expected values are by hand, or by formulas written out here."""

import math
import statistics
from collections.abc import Sequence

import pytest

from coordinator.choices import Objective, Task
from coordinator.scoring import EvaluationError, Row, Scoring

LABELS = (1, 0, 1, 1, 0, 0, 1, 0, 1, 1)
PREDICTED = (1, 0, 0, 1, 0, 1, 1, 0, 1, 1)
NAMES = {
    Task.COLA: ("unacceptable", "acceptable"),
    Task.MRPC: ("not_equivalent", "equivalent"),
    Task.QQP: ("not_duplicate", "duplicate"),
    Task.RTE: ("entailment", "not_entailment"),
}


def scores(
    task: Task, predicted: Sequence[int], labels: Sequence[int], *, names: tuple[str, ...] | None = None
) -> tuple[dict[str, float | None], str]:
    """Return the metrics by name and the reasons of those that have none."""
    rows = [
        Row(index, tuple(float(c == chosen) for c in range(2)), float(label))
        for index, (chosen, label) in enumerate(zip(predicted, labels, strict=True))
    ]
    scoring = Scoring(task=task, objective=Objective.CLASSIFICATION, labels=names or NAMES[task])
    _, metrics = scoring.score(rows)
    return {name: value for name, value, _ in metrics}, "; ".join(reason for _, _, reason in metrics if reason)


def numbers(predicted: Sequence[float], labels: Sequence[float]) -> tuple[float, dict[str, float | None], str]:
    rows = [Row(index, (p,), label) for index, (p, label) in enumerate(zip(predicted, labels, strict=True))]
    loss, metrics = Scoring(task=Task.STSB, objective=Objective.CLASSIFICATION, labels=()).score(rows)
    return loss, {name: value for name, value, _ in metrics}, "; ".join(reason for _, _, reason in metrics if reason)


def test_h18_metrics_are_of_all_rows_and_not_means_of_batches() -> None:
    """5 true positives, 3 true negatives, 1 false of each: (5*3 - 1*1) / sqrt(6 * 6 * 4 * 4) and 2*5 / (2*5 + 2)."""
    assert scores(Task.COLA, PREDICTED, LABELS)[0] == {"matthews_correlation": pytest.approx(14 / 24)}
    assert scores(Task.MRPC, PREDICTED, LABELS)[0] == {"accuracy": pytest.approx(0.8), "f1": pytest.approx(10 / 12)}
    assert scores(Task.QQP, PREDICTED, LABELS)[0] == {"accuracy": pytest.approx(0.8), "f1": pytest.approx(10 / 12)}
    assert scores(Task.RTE, PREDICTED, LABELS)[0] == {"accuracy": pytest.approx(0.8)}


def test_f1_is_of_the_positive_name_whatever_its_id() -> None:
    """The same rows under a model that has the ids the other way round."""
    turned = [[1 - value for value in values] for values in (PREDICTED, LABELS)]
    found, _ = scores(Task.MRPC, *turned, names=("equivalent", "not_equivalent"))
    assert found == {"accuracy": pytest.approx(0.8), "f1": pytest.approx(10 / 12)}


@pytest.mark.parametrize(
    ("task", "predicted", "labels", "name", "reason"),
    [
        (Task.MRPC, (0, 0), (0, 0), "f1", "f1 is undefined: no row is or was predicted to be equivalent"),
        (Task.QQP, (0, 0), (0, 0), "f1", "f1 is undefined: no row is or was predicted to be duplicate"),
        (
            Task.COLA,
            (0, 1),
            (1, 1),
            "matthews_correlation",
            "matthews_correlation is undefined: all rows are of one label",
        ),
        (
            Task.COLA,
            (1, 1),
            (0, 1),
            "matthews_correlation",
            "matthews_correlation is undefined: all rows were predicted to be of one label",
        ),
    ],
)
def test_metric_that_is_undefined_is_none_with_a_reason(
    task: Task, predicted: tuple[int, ...], labels: tuple[int, ...], name: str, reason: str
) -> None:
    found, told = scores(task, predicted, labels)
    assert (found[name], told) == (None, reason)


def test_stsb_scores_are_correlations_and_the_loss_is_the_mean_squared_error() -> None:
    labels, predicted = (0.0, 1.0, 2.5, 4.0, 5.0), (0.5, 0.25, 3.0, 3.5, 4.75)
    loss, found, _ = numbers(predicted, labels)
    assert loss == pytest.approx((0.25 + 0.5625 + 0.25 + 0.25 + 0.0625) / 5)
    assert found["pearson"] == pytest.approx(statistics.correlation(predicted, labels))
    # Ranks 2 1 3 4 5 against 1 2 3 4 5: 1 - 6 * (1 + 1) / (5 * 24)
    assert found["spearmanr"] == pytest.approx(0.9)


def test_h02_loss_of_a_head_of_zeros_is_the_mean_square_of_the_scores() -> None:
    loss, _, _ = numbers((0.0,) * 4, (2.5, 3.8, 0.0, 5.0))
    assert loss == pytest.approx(11.4225, abs=1e-4)  # (6.25 + 14.44 + 25) / 4


@pytest.mark.parametrize(
    ("predicted", "labels", "what"),
    [((1.0, 1.0), (0.0, 5.0), "predictions"), ((1.0, 2.0), (3.0, 3.0), "labels"), ((1.0,), (3.0,), "labels")],
)
def test_correlation_with_what_does_not_vary_is_undefined(
    predicted: tuple[float, ...], labels: tuple[float, ...], what: str
) -> None:
    loss, found, told = numbers(predicted, labels)
    assert found == {"pearson": None, "spearmanr": None}
    assert f"pearson is undefined: all {what} are the same" in told
    assert math.isfinite(loss)


def test_stsb_rows_with_two_outputs_are_refused() -> None:
    scoring = Scoring(task=Task.STSB, objective=Objective.CLASSIFICATION, labels=())
    with pytest.raises(EvaluationError, match="the rows have 2 outputs, needs one number of each"):
        scoring.score([Row(0, (1.0, 2.0), 3.0)])


def test_stsb_output_that_is_not_finite_leaves_all_undefined() -> None:
    loss, found, told = numbers((math.nan, 1.0), (1.0, 2.0))
    assert math.isnan(loss)
    assert found == {"pearson": None, "spearmanr": None}
    assert "an output was not a finite number" in told
