"""Between the wire's messages and the engine's values."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from takt.v1 import commands_pb2, data_pb2, workers_pb2

from stage_worker.engine.batch_source import DataError
from stage_worker.engine.commands import Command, Op, Phase, Shape, StepCommands, StepSetting
from stage_worker.engine.ledger import Account, busy_seconds, idle_seconds
from stage_worker.engine.result import RowOutput, StepResult
from stage_worker.models.microbatch import Microbatch

MAX_ROWS_BYTES = 1024 * 1024
"""Most that one report of evaluation rows holds."""

_OPS = {
    commands_pb2.OP_FORWARD: Op.FORWARD,
    commands_pb2.OP_BACKWARD: Op.BACKWARD,
    commands_pb2.OP_INPUT_GRADIENT: Op.INPUT_GRADIENT,
    commands_pb2.OP_WEIGHT_GRADIENT: Op.WEIGHT_GRADIENT,
    commands_pb2.OP_SEND_ACTIVATION: Op.SEND_ACTIVATION,
    commands_pb2.OP_RECV_ACTIVATION: Op.RECV_ACTIVATION,
    commands_pb2.OP_SEND_GRADIENT: Op.SEND_GRADIENT,
    commands_pb2.OP_RECV_GRADIENT: Op.RECV_GRADIENT,
    commands_pb2.OP_REDUCE: Op.REDUCE,
    commands_pb2.OP_STEP: Op.STEP,
    commands_pb2.OP_SAVE: Op.SAVE,
    commands_pb2.OP_STOP: Op.STOP,
}
_PHASES = {data_pb2.PHASE_TRAIN: Phase.TRAIN, data_pb2.PHASE_EVALUATE: Phase.EVALUATE}
_DTYPES = {data_pb2.DATA_TYPE_INT64: torch.int64, data_pb2.DATA_TYPE_FLOAT32: torch.float32}
_COLUMNS = ("input_ids", "token_type_ids", "attention_mask", "labels")


class MessageError(ValueError):
    """A message that this worker cannot obey."""


def decode_commands(message: commands_pb2.StepCommands) -> StepCommands:
    """Return the commands of a message.

    Raises:
        MessageError: an op or a phase is not known here.
    """
    if message.phase not in _PHASES:
        raise MessageError(f"phase {message.phase} of step {message.step} is not known to this worker")
    unknown = sorted({command.op for command in message.commands} - _OPS.keys())
    if unknown:
        raise MessageError(f"ops {unknown} in step {message.step} are not known to this worker; is it older?")
    return StepCommands(
        setting=StepSetting(
            phase=_PHASES[message.phase],
            split=message.split,
            step=message.step,
            denominator=message.denominator,
            microbatches=tuple(Shape(shape.rows, shape.width) for shape in message.microbatches),
            after=message.after,
        ),
        first_seq=message.first_seq,
        commands=tuple(
            Command(_OPS[command.op], command.stage, command.microbatch, command.peer) for command in message.commands
        ),
        ends_step=message.ends_step,
        acknowledge=message.acknowledge,
    )


def encode_phase(phase: Phase) -> data_pb2.Phase:
    """Return the wire's word for a phase."""
    return next(wire for wire, ours in _PHASES.items() if ours is phase)


def decode_microbatch(message: data_pb2.Microbatch, *, announced: Shape) -> Microbatch:
    """Return the rows of a message, on the CPU.

    Raises:
        DataError: they have not the shape that the commands announced, an unknown type, or no mask.
    """
    if len(message.row_ids) != announced.rows:
        raise DataError(f"microbatch {message.microbatch} has {len(message.row_ids)} rows, not {announced.rows}")
    tensors: dict[str, torch.Tensor] = {}
    for column in message.columns:
        shape = tuple(column.shape)
        by_token = (announced.rows, announced.width)
        expected = ((announced.rows,), by_token) if column.name == "labels" else (by_token,)
        if column.name not in _COLUMNS or column.data_type not in _DTYPES or shape not in expected:
            raise DataError(
                f"microbatch {message.microbatch} has a column {column.name!r} of type {column.data_type} and "
                f"shape {shape}, announced was {by_token}"
            )
        flat = torch.frombuffer(bytearray(column.data), dtype=_DTYPES[column.data_type])
        tensors[column.name] = flat.reshape(shape)
    ids, types, mask, labels = (tensors.get(name) for name in _COLUMNS)
    if mask is None:
        raise DataError(f"microbatch {message.microbatch} came without its attention_mask")
    return Microbatch(tuple(message.row_ids), ids, types, mask, labels)


def encode_report(
    result: StepResult, *, after: int, seconds: Mapping[Account, float], stages: Sequence[int]
) -> commands_pb2.StepReport:
    """Return the report of a step.

    Args:
        result: what the engine says of it.
        after: training step that it trained, or whose weights it evaluated.
        seconds: time of each account since the last report.
        stages: the worker's, ascending.
    """
    return commands_pb2.StepReport(
        phase=encode_phase(result.phase),
        step=result.step,
        last_seq=result.last_seq,
        loss_sums=result.loss_sums,
        grad_norm=result.grad_norm,
        learning_rate=result.learning_rate,
        loss_scale=result.loss_scale,
        skipped=result.skipped,
        times=list(_time_shares(seconds, stages)),
        sent_bytes=result.sent_bytes,
        received_bytes=result.received_bytes,
        peak_in_flight=result.peak_in_flight,
        after=after,
    )


def encode_rows(
    rows: Sequence[RowOutput], *, setting: StepSetting, max_bytes: int = MAX_ROWS_BYTES
) -> Iterator[workers_pb2.EvaluationRows]:
    """Return the rows of an evaluation step in reports of at most ``max_bytes``."""

    def empty() -> workers_pb2.EvaluationRows:
        return workers_pb2.EvaluationRows(split=setting.split, step=setting.step, after=setting.after)

    report = empty()
    size = report.ByteSize()
    for row in rows:
        message = workers_pb2.EvaluationRow(row_id=row.row_id, outputs=row.outputs, label=row.label)
        row_bytes = message.ByteSize() + 8  # tag and length of the field
        if report.rows and size + row_bytes > max_bytes:
            yield report
            report = empty()
            size = report.ByteSize()
        report.rows.append(message)
        size += row_bytes
    if report.rows:
        yield report


def _time_shares(seconds: Mapping[Account, float], stages: Sequence[int]) -> Iterator[commands_pb2.TimeShare]:
    for (stage, op), passed in busy_seconds(seconds, stages=stages).items():
        yield commands_pb2.TimeShare(activity=op, busy=True, stage=stage, seconds=passed)
    for reason, passed in idle_seconds(seconds).items():
        yield commands_pb2.TimeShare(activity=reason, busy=False, seconds=passed)
