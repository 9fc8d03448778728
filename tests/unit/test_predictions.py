"""Predictions as GLUE's submissions have them."""

import math

import pytest

from coordinator.predictions import submission
from coordinator.scoring import EvaluationError, Row


def test_submission_has_the_row_and_the_written_label_of_the_largest_output() -> None:
    """Ids are the model's: 0 is what the files write as contradiction."""
    rows = [Row(0, (0.1, 2.0, -1.0), None), Row(1, (3.0, 2.0, 1.0), 2.0), Row(2, (0.0, 0.0, 0.5), None)]
    text = submission(rows, written_labels=("contradiction", "entailment", "neutral"))
    assert text == "index\tprediction\n0\tentailment\n1\tcontradiction\n2\tneutral\n"


def test_submission_of_numbers_has_all_digits_of_fp32() -> None:
    rows = [Row(row, (number,), None) for row, number in enumerate((3.4028234663852886e38, 0.1, -2.5))]
    text = submission(rows, written_labels=())
    assert text == "index\tprediction\n0\t3.40282347e+38\n1\t0.1\n2\t-2.5\n"


@pytest.mark.parametrize("output", [math.nan, math.inf])
def test_submission_of_an_output_that_is_not_finite_is_refused_naming_its_row(output: float) -> None:
    with pytest.raises(EvaluationError, match="row 1 has an output that is not a finite number"):
        submission([Row(0, (0.0, 1.0), None), Row(1, (0.0, output), None)], written_labels=("0", "1"))
