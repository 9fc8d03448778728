import math

from takt.v1 import data_pb2

from coordinator.commit import step_record
from coordinator.events import StepResult

DESCRIPTION = data_pb2.StepDescription(
    step=4,
    epoch=1,
    denominator=10,
    examples=10,
    tokens=60,
    padded_tokens=7,
    replicas=[
        data_pb2.ReplicaShape(microbatches=[data_pb2.MicrobatchShape(rows=2, width=5, row_ids=[3, 1])]),
        data_pb2.ReplicaShape(microbatches=[data_pb2.MicrobatchShape(rows=1, width=9, row_ids=[8])]),
    ],
)


def result(worker: int, *loss_sums: float, grad_norm: float | None = 2.0, skipped: bool = False) -> StepResult:
    return StepResult(worker=worker, loss_sums=loss_sums, grad_norm=grad_norm, learning_rate=1e-3, skipped=skipped)


def test_step_record_adds_losses_by_replica_then_microbatch_and_divides_once() -> None:
    # In this order the sum is 1.0; in any other order 1e16 swallows it.
    results = [result(0), result(1, 1e16, -1e16), result(2), result(3, 1.0)]
    record = step_record(results, DESCRIPTION, seconds=0.5, record_rows=True)
    assert record.loss == 0.1
    assert (record.step, record.epoch, record.examples, record.tokens, record.padded_tokens) == (4, 1, 10, 60, 7)
    assert (record.grad_norm, record.learning_rate, record.seconds, record.skipped) == (2.0, 1e-3, 0.5, False)
    assert record.rows == (((3, 1),), ((8,),))
    assert record.loss_scale is None


def test_step_record_loss_not_a_number_is_none() -> None:
    record = step_record([result(0, math.nan)], DESCRIPTION, seconds=0.5, record_rows=False)
    assert (record.loss, record.rows) == (None, None)


def test_step_record_overflow_keeps_scale_and_rate_and_has_neither_norm_nor_loss() -> None:
    """An overflow in the forward leaves no finite loss; the rate is the one that the update would have used."""
    overflow = StepResult(worker=0, loss_sums=(math.inf,), learning_rate=1e-3, skipped=True, loss_scale=65536.0)
    record = step_record([overflow], DESCRIPTION, seconds=0.5, record_rows=False)
    assert (record.loss, record.grad_norm, record.skipped) == (None, None, True)
    assert (record.loss_scale, record.learning_rate) == (65536.0, 1e-3)


def test_step_record_skipped_step_has_no_norm() -> None:
    record = step_record([result(0, 1.0, skipped=True)], DESCRIPTION, seconds=0.5, record_rows=False)
    assert (record.skipped, record.grad_norm) == (True, None)
