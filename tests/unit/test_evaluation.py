import math
import random

import pytest

from coordinator.choices import Objective, Task
from coordinator.evaluation import Evaluation
from coordinator.records import EvaluationRecord
from coordinator.scoring import EvaluationError, Row, Scoring

LABELS = {
    Task.MRPC: ("not_equivalent", "equivalent"),
    Task.QQP: ("not_duplicate", "duplicate"),
    Task.COLA: ("unacceptable", "acceptable"),
    Task.STSB: (),
}


def empty(num_rows: int, *, task: Task = Task.DEMO, objective: Objective = Objective.CLASSIFICATION) -> Evaluation:
    labels = LABELS.get(task, ("negative", "positive"))
    scoring = Scoring(task=task, objective=objective, labels=labels)
    return Evaluation(split="validation", num_rows=num_rows, scoring=scoring)


def evaluation(*rows: tuple[int, tuple[float, ...], float], task: Task = Task.DEMO) -> Evaluation:
    collected = empty(len(rows), task=task)
    collected.add(Row(*row) for row in rows)
    return collected


ROWS = (
    (2, (0.0, 0.0), 0.0),
    (0, (0.0, math.log(3)), 1.0),
    (3, (5.0, 1.0), 1.0),
    (1, (2.0, 2.0 + math.log(4)), 1.0),
)
"""Probabilities of the labels by hand: row 0 3/4, row 1 4/5, row 2 1/2, row 3 1/(1+e^4); predicted 1, 1, 0, 0."""


def test_record_sst2_gives_loss_and_accuracy_by_hand() -> None:
    record = evaluation(*ROWS, task=Task.SST2).record(step=7)
    by_hand = (-math.log(3 / 4) - math.log(4 / 5) - math.log(1 / 2) + math.log(1 + math.exp(4))) / 4
    assert (record.step, record.split, record.examples, record.reason) == (7, "validation", 4, None)
    assert record.loss == pytest.approx(by_hand, rel=1e-12)
    assert record.metrics == (("accuracy", 3 / 4),)


def test_record_mrpc_gives_f1_too() -> None:
    # Label 1 truly: rows 0, 1, 3; predicted: rows 0, 1. Precision 1, recall 2/3, F1 = 4/5.
    record = evaluation(*ROWS, task=Task.MRPC).record(step=1)
    assert dict(record.metrics) == {"accuracy": 3 / 4, "f1": pytest.approx(4 / 5)}


def test_record_f1_without_positive_rows_is_undefined_with_a_reason() -> None:
    record = evaluation((0, (1.0, 0.0), 0.0), task=Task.MRPC).record(step=1)
    assert record.metrics == (("accuracy", 1.0), ("f1", None))
    assert record.reason is not None
    assert "f1 is undefined" in record.reason


@pytest.mark.parametrize("output", [math.nan, math.inf])
def test_record_output_not_finite_leaves_all_undefined(output: float) -> None:
    record = evaluation((0, (output, 0.0), 0.0), (1, (0.0, 1.0), 1.0), task=Task.MRPC).record(step=1)
    assert (record.loss, record.metrics) == (None, (("accuracy", None), ("f1", None)))
    assert record.reason == "an output was not a finite number"


def test_record_loss_far_apart_outputs_does_not_overflow() -> None:
    record = evaluation((0, (1e4, -1e4), 1.0), task=Task.DEMO).record(step=1)
    assert record.loss == pytest.approx(2e4)


def test_add_row_twice_is_refused_naming_it() -> None:
    collected = evaluation((0, (0.0, 1.0), 1.0))
    with pytest.raises(EvaluationError, match="row 0 of the evaluation was reported twice"):
        collected.add([Row(0, (0.0, 1.0), 1.0)])


def test_add_row_outside_the_split_is_refused() -> None:
    with pytest.raises(EvaluationError, match="row 5 was reported, but the split has 2 rows"):
        empty(2).add([Row(5, (0.0, 1.0), 1.0)])


def test_record_row_missing_is_refused_naming_it() -> None:
    collected = empty(3)
    collected.add([Row(0, (0.0, 1.0), 1.0), Row(2, (0.0, 1.0), 1.0)])
    with pytest.raises(EvaluationError, match="2 of 3 rows; row 1 was not reported"):
        collected.record(step=1)


@pytest.mark.parametrize("objective", [Objective.MASKED_LM, Objective.CAUSAL_LM])
def test_record_of_tokens_gives_their_mean_loss_and_perplexity_whatever_their_order(objective: Objective) -> None:
    """Row r has r tokens that cost 1, ..., r: 1 + 3 + 6 + ... over 0 + 1 + 2 + ..., never the mean of rows."""
    rows = [Row(r, (r * (r + 1) / 2,), float(r)) for r in range(5)]
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        collected = empty(5, task=Task.MRPC, objective=objective)
        collected.add(rows)
        record = collected.record(step=7)
        assert record == EvaluationRecord(
            step=7, split="validation", examples=5, loss=20 / 10, metrics=(("perplexity", math.exp(2)),)
        )


@pytest.mark.parametrize(
    ("row", "loss", "reason"),
    [
        (Row(0, (math.inf,), 3.0), None, "an output was not a finite number"),
        (Row(0, (math.nan,), 3.0), None, "an output was not a finite number"),
        (Row(0, (0.0,), 0.0), None, "no token of the split counts"),
        (Row(0, (3000.0,), 3.0), 1000.0, "perplexity is too large a number"),
    ],
)
def test_record_of_tokens_without_a_perplexity_says_why(row: Row, loss: float | None, reason: str) -> None:
    collected = empty(1, objective=Objective.CAUSAL_LM)
    collected.add([row])
    record = collected.record(step=1)
    assert (record.loss, record.metrics, record.reason) == (loss, (("perplexity", None),), reason)


def test_record_of_tokens_from_a_row_with_the_outputs_of_classes_is_refused_naming_it() -> None:
    collected = empty(2, objective=Objective.CAUSAL_LM)
    collected.add([Row(0, (1.0,), 2.0), Row(1, (0.0, 1.0), 1.0)])
    with pytest.raises(EvaluationError, match="row 1 has 2 outputs, needs the loss of its tokens only"):
        collected.record(step=1)


def test_record_of_classes_with_different_numbers_of_outputs_is_refused() -> None:
    with pytest.raises(EvaluationError, match="different numbers of outputs"):
        evaluation((0, (1.0,), 0.0), (1, (0.0, 1.0), 1.0), task=Task.DEMO).record(step=1)
