"""Between the wire and the engine's values."""

import array

import pytest
import torch
from takt.v1 import commands_pb2, data_pb2

from stage_worker.decode import MessageError, decode_commands, decode_microbatch, encode_report, encode_rows
from stage_worker.engine.batch_source import DataError
from stage_worker.engine.commands import Command, Op, Phase, Shape, StepSetting
from stage_worker.engine.ledger import Account, Activity
from stage_worker.engine.result import RowOutput, StepResult


def test_decode_commands_keeps_every_field() -> None:
    decoded = decode_commands(
        commands_pb2.StepCommands(
            job="a",
            attempt=1,
            phase=data_pb2.PHASE_TRAIN,
            split="train",
            step=3,
            first_seq=41,
            denominator=10,
            microbatches=[data_pb2.MicrobatchShape(rows=3, width=7), data_pb2.MicrobatchShape()],
            commands=[
                commands_pb2.Command(op=commands_pb2.OP_RECV_ACTIVATION, stage=2, microbatch=1, peer=5),
                commands_pb2.Command(op=commands_pb2.OP_STEP),
            ],
            ends_step=True,
            acknowledge=True,
        )
    )
    assert decoded.commands == (Command(Op.RECV_ACTIVATION, stage=2, microbatch=1, peer=5), Command(Op.STEP))
    assert decoded.setting.microbatches == (Shape(3, 7), Shape(0, 0))
    setting = decoded.setting
    assert (setting.phase, setting.split, setting.step, setting.denominator) == (Phase.TRAIN, "train", 3, 10)
    assert (decoded.first_seq, decoded.ends_step, decoded.acknowledge) == (41, True, True)


def test_decode_commands_every_op_of_the_wire_has_one_of_ours() -> None:
    wire = [op for op in commands_pb2.Op.values() if op != commands_pb2.OP_UNSPECIFIED]
    message = commands_pb2.StepCommands(
        phase=data_pb2.PHASE_EVALUATE, commands=[commands_pb2.Command(op=op) for op in wire]
    )
    names = [f"OP_{command.op.name}" for command in decode_commands(message).commands]
    assert names == [commands_pb2.Op.Name(op) for op in wire]


def test_decode_commands_unknown_op_is_refused() -> None:
    message = commands_pb2.StepCommands(phase=data_pb2.PHASE_TRAIN, step=4, commands=[commands_pb2.Command()])
    with pytest.raises(MessageError, match=r"ops \[0\] in step 4"):
        decode_commands(message)


def test_decode_commands_unknown_phase_is_refused() -> None:
    with pytest.raises(MessageError, match="phase 0 of step 4"):
        decode_commands(commands_pb2.StepCommands(step=4))


def column(name: str, values: list[int] | list[float], shape: tuple[int, ...]) -> data_pb2.Column:
    is_float = isinstance(values[0], float)
    return data_pb2.Column(
        name=name,
        data_type=data_pb2.DATA_TYPE_FLOAT32 if is_float else data_pb2.DATA_TYPE_INT64,
        shape=shape,
        data=array.array("f" if is_float else "q", values).tobytes(),
    )


def test_decode_microbatch_columns_arrive_as_they_were_sent() -> None:
    message = data_pb2.Microbatch(
        microbatch=1,
        row_ids=[8, 5],
        columns=[column("labels", [2.5, 0.0], (2,)), column("attention_mask", [1, 1, 1, 1, 0, 0], (2, 3))],
    )
    batch = decode_microbatch(message, announced=Shape(2, 3))
    assert batch.row_ids == (8, 5)
    assert torch.equal(batch.attention_mask_BL, torch.tensor([[1, 1, 1], [1, 0, 0]]))
    assert batch.labels is not None
    assert torch.equal(batch.labels, torch.tensor([2.5, 0.0]))
    assert batch.input_ids_BL is None
    assert batch.token_type_ids_BL is None


@pytest.mark.parametrize(
    ("row_ids", "columns", "complaint"),
    [
        ([1], [column("attention_mask", [1, 1], (1, 2))], "has 1 rows, not 2"),
        ([1, 2], [column("attention_mask", [1, 1], (2, 1))], r"shape \(2, 1\), announced was \(2, 2\)"),
        ([1, 2], [column("attention_mask", [1] * 4, (2, 2)), column("pixels", [1] * 4, (2, 2))], "'pixels'"),
        ([1, 2], [column("labels", [0, 1], (2,))], "without its attention_mask"),
    ],
)
def test_decode_microbatch_other_than_announced_is_refused(
    row_ids: list[int], columns: list[data_pb2.Column], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        decode_microbatch(data_pb2.Microbatch(row_ids=row_ids, columns=columns), announced=Shape(2, 2))


def test_encode_report_shares_add_up_to_the_time_that_passed() -> None:
    seconds: dict[Account, float] = {(activity, None): float(1 << activity) for activity in Activity}
    seconds |= {(Activity.FORWARD, 4): 0.5, (Activity.WEIGHT_GRADIENT, 9): 0.25}
    result = StepResult(phase=Phase.TRAIN, step=3, last_seq=9, loss_sums=(1.5, 0.25), grad_norm=2.0, learning_rate=0.1)
    report = encode_report(result, after=3, seconds=seconds, stages=(4, 9))
    assert sum(share.seconds for share in report.times) == sum(seconds.values())
    shares = {(share.activity, share.busy, share.stage): share.seconds for share in report.times}
    assert len(shares) == len(report.times)
    assert shares["F", True, 4] == 0.5 + (1 << Activity.FORWARD)
    assert shares["W", True, 9] == 0.25
    assert shares["step", True, 4] == 1 << Activity.STEP
    assert ("step", True, 9) not in shares
    assert shares["gradient", False, 0] == 1 << Activity.WAIT_GRADIENT
    assert shares["other", False, 0] == (1 << Activity.OTHER) + (1 << Activity.LOAD)
    assert (report.phase, report.step, report.last_seq) == (data_pb2.PHASE_TRAIN, 3, 9)
    assert list(report.loss_sums) == [1.5, 0.25]
    assert (report.grad_norm, report.learning_rate) == (2.0, 0.1)


def test_encode_report_without_a_norm_leaves_it_out() -> None:
    result = StepResult(phase=Phase.EVALUATE, step=1, last_seq=1)
    assert not encode_report(result, after=3, seconds={}, stages=(0,)).HasField("grad_norm")


def evaluated(step: int) -> StepSetting:
    return StepSetting(phase=Phase.EVALUATE, split="validation", step=step, denominator=1, microbatches=(), after=7)


def test_encode_rows_cuts_reports_at_the_limit_and_loses_no_row() -> None:
    rows = [RowOutput(row, (0.5, float(row)), 1.0) for row in range(100)]
    reports = list(encode_rows(rows, setting=evaluated(2), max_bytes=500))
    assert len(reports) > 3
    assert all(report.ByteSize() <= 500 for report in reports)
    assert all((report.split, report.step, report.after) == ("validation", 2, 7) for report in reports)
    got = [(row.row_id, tuple(row.outputs), row.label) for report in reports for row in report.rows]
    assert got == [(row, (0.5, float(row)), 1.0) for row in range(100)]


def test_encode_rows_without_rows_says_nothing() -> None:
    assert list(encode_rows([], setting=evaluated(1))) == []
