"""Metrics of rows that come in batches are those of all rows at once."""

import math

import pytest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from coordinator.choices import Objective, Task
from coordinator.evaluation import Evaluation
from coordinator.scoring import Row, Scoring

LABELS = (1, 0, 1, 1, 0, 0, 1, 0, 1, 1)
PREDICTED = (1, 0, 0, 1, 0, 1, 1, 0, 1, 1)
BATCHES = (slice(0, 4), slice(4, 8), slice(8, 10))


@pytest.mark.filterwarnings("ignore:A single label was found")  # in the last batch
@pytest.mark.parametrize(
    ("task", "labels", "name", "expected", "mean_of_batches", "score"),
    [
        (Task.COLA, ("unacceptable", "acceptable"), "matthews_correlation", 0.583333, 0.384900, matthews_corrcoef),
        (Task.MRPC, ("not_equivalent", "equivalent"), "f1", 0.833333, 0.822222, f1_score),
        (Task.MRPC, ("not_equivalent", "equivalent"), "accuracy", 0.8, 0.833333, accuracy_score),
    ],
)
def test_h18_metric_of_batches_of_four_is_of_all_ten_rows_and_no_mean_of_batches(
    task: Task, labels: tuple[str, ...], name: str, expected: float, mean_of_batches: float, score: object
) -> None:
    scoring = Scoring(task=task, objective=Objective.CLASSIFICATION, labels=labels)
    evaluation = Evaluation(split="validation", num_rows=10, scoring=scoring)
    rows = [
        Row(row, (float(chosen == 0), float(chosen == 1)), float(label))
        for row, (chosen, label) in enumerate(zip(PREDICTED, LABELS, strict=True))
    ]
    for batch in BATCHES[::-1]:
        evaluation.add(rows[batch])

    assert dict(evaluation.record(step=1).metrics)[name] == pytest.approx(expected, abs=5e-7)
    assert callable(score)
    means = [score(LABELS[batch], PREDICTED[batch]) for batch in BATCHES]
    assert math.fsum(means) / 3 == pytest.approx(mean_of_batches, abs=5e-7), "else the case tells nothing apart"
