"""Predictions of a split as GLUE's submissions have them: ``index`` and ``prediction``, in the order of the file."""

import math
from collections.abc import Iterable, Sequence

from coordinator.scoring import EvaluationError, Row


def submission(rows: Iterable[Row], *, written_labels: Sequence[str]) -> str:
    """Return the text of a submission.

    Args:
        rows: one a row of the split, ascending.
        written_labels: how files write each label, in the order of the ids that outputs have; none where numbers
            are predicted, which are written as they are.

    Raises:
        EvaluationError: an output is no finite number, of which nothing can be said.
    """
    lines = ["index\tprediction"]
    for row in rows:
        if not all(map(math.isfinite, row.outputs)):
            raise EvaluationError(f"row {row.row_id} has an output that is not a finite number; nothing is predicted")
        if written_labels:
            prediction = written_labels[max(range(len(row.outputs)), key=row.outputs.__getitem__)]
        else:
            prediction = f"{row.outputs[0]:.9g}"  # all that fp32 has
        lines.append(f"{row.row_id}\t{prediction}")
    return "\n".join(lines) + "\n"
