"""From what the workers reported of a step to the record of it. Pure."""

import math
from collections.abc import Sequence

from takt.v1 import data_pb2

from coordinator.events import StepResult
from coordinator.records import StepRecord


def step_record(
    results: Sequence[StepResult],
    description: data_pb2.StepDescription,
    *,
    seconds: float,
    record_rows: bool,
) -> StepRecord:
    """Return the record of a training step.

    Args:
        results: one a worker, ascending; so the losses of replicas are added in dp-rank order.
        description: rows and widths of the step.
        seconds: since the commit before it.
        record_rows: whether the job asked for row ids.
    """
    total = 0.0
    for result in results:
        for loss_sum in result.loss_sums:
            total += loss_sum
    loss = total / description.denominator
    first = results[0]
    rows = tuple(tuple(tuple(shape.row_ids) for shape in replica.microbatches) for replica in description.replicas)
    return StepRecord(
        step=description.step,
        epoch=description.epoch,
        loss=loss if math.isfinite(loss) else None,
        grad_norm=None if first.skipped else first.grad_norm,
        learning_rate=first.learning_rate,
        examples=description.examples,
        tokens=description.tokens,
        padded_tokens=description.padded_tokens,
        seconds=seconds,
        skipped=first.skipped,
        loss_scale=first.loss_scale,
        rows=rows if record_rows else None,
    )
