import math

import pytest

from coordinator.choices import Task
from coordinator.evaluation import Evaluation, EvaluationError, Row


def evaluation(*rows: tuple[int, tuple[float, ...], float]) -> Evaluation:
    collected = Evaluation(num_rows=len(rows))
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
    record = evaluation(*ROWS).record(task=Task.SST2, step=7, split="validation")
    by_hand = (-math.log(3 / 4) - math.log(4 / 5) - math.log(1 / 2) + math.log(1 + math.exp(4))) / 4
    assert (record.step, record.split, record.examples, record.reason) == (7, "validation", 4, None)
    assert record.loss == pytest.approx(by_hand, rel=1e-12)
    assert record.metrics == (("accuracy", 3 / 4),)


def test_record_mrpc_gives_f1_too() -> None:
    # Label 1 truly: rows 0, 1, 3; predicted: rows 0, 1. Precision 1, recall 2/3, F1 = 4/5.
    record = evaluation(*ROWS).record(task=Task.MRPC, step=1, split="validation")
    assert dict(record.metrics) == {"accuracy": 3 / 4, "f1": pytest.approx(4 / 5)}


def test_record_f1_without_positive_rows_is_undefined_with_a_reason() -> None:
    record = evaluation((0, (1.0, 0.0), 0.0)).record(task=Task.MRPC, step=1, split="validation")
    assert record.metrics == (("accuracy", 1.0), ("f1", None))
    assert record.reason is not None
    assert "f1 is undefined" in record.reason


@pytest.mark.parametrize("output", [math.nan, math.inf])
def test_record_output_not_finite_leaves_all_undefined(output: float) -> None:
    record = evaluation((0, (output, 0.0), 0.0), (1, (0.0, 1.0), 1.0)).record(task=Task.MRPC, step=1, split="v")
    assert (record.loss, record.metrics) == (None, (("accuracy", None), ("f1", None)))
    assert record.reason == "an output was not a finite number"


def test_record_loss_far_apart_outputs_does_not_overflow() -> None:
    record = evaluation((0, (1e4, -1e4), 1.0)).record(task=Task.DEMO, step=1, split="v")
    assert record.loss == pytest.approx(2e4)


def test_add_row_twice_is_refused_naming_it() -> None:
    collected = evaluation((0, (0.0, 1.0), 1.0))
    with pytest.raises(EvaluationError, match="row 0 of the evaluation was reported twice"):
        collected.add([Row(0, (0.0, 1.0), 1.0)])


def test_add_row_outside_the_split_is_refused() -> None:
    with pytest.raises(EvaluationError, match="row 5 was reported, but the split has 2 rows"):
        Evaluation(num_rows=2).add([Row(5, (0.0, 1.0), 1.0)])


def test_record_row_missing_is_refused_naming_it() -> None:
    collected = Evaluation(num_rows=3)
    collected.add([Row(0, (0.0, 1.0), 1.0), Row(2, (0.0, 1.0), 1.0)])
    with pytest.raises(EvaluationError, match="2 of 3 rows; row 1 was not reported"):
        collected.record(task=Task.DEMO, step=1, split="v")
