"""Facts, shapes and microbatches as messages of takt.v1."""

from collections.abc import Iterator

from takt.rpc.limits import MAX_MESSAGE_BYTES
from takt.v1 import data_pb2 as pb

from dataloader_svc.errors import RequestError
from dataloader_svc.facts import DataFacts
from dataloader_svc.microbatches import Column, Microbatch, StepShape

MESSAGE_BYTES = 2**20
"""From this size on a message of microbatches is sent; a message costs more time than the rows of a small one."""
PART_BYTES = MAX_MESSAGE_BYTES // 2
"""From this size on a microbatch is cut between columns, for it may be larger than a message."""
MAX_COLUMN_BYTES = MAX_MESSAGE_BYTES - 2 * MESSAGE_BYTES
"""What fits into a message beside what is already in it."""

_DATA_TYPES = {"<i8": pb.DATA_TYPE_INT64, "<f4": pb.DATA_TYPE_FLOAT32}


def encode_facts(facts: DataFacts) -> pb.DataFacts:
    """Return the message."""
    return pb.DataFacts(
        splits=[
            pb.Split(
                name=split.name,
                rows=split.num_rows,
                labelled=split.labelled,
                steps=split.evaluation_steps,
                malformed=split.num_malformed,
                digest=split.digest,
            )
            for split in facts.splits
        ],
        labels=facts.labels,
        written_labels=facts.written_labels,
        num_labels=facts.num_labels,
        vocabulary_size=facts.vocabulary_size,
        pad_token_id=facts.pad_token_id,
        steps_per_epoch=facts.steps_per_epoch,
        total_steps=facts.total_steps,
    )


def encode_step(step: StepShape) -> pb.StepDescription:
    """Return the message of one step's shapes."""
    return pb.StepDescription(
        step=step.step,
        epoch=step.epoch,
        denominator=step.denominator,
        examples=step.num_rows,
        tokens=step.num_tokens,
        padded_tokens=step.num_positions - step.num_tokens,
        replicas=[
            pb.ReplicaShape(
                microbatches=[
                    pb.MicrobatchShape(rows=shape.num_rows, width=shape.width, row_ids=shape.row_ids)
                    for shape in shapes
                ]
            )
            for shapes in step.replicas
        ],
    )


def encode_microbatch(microbatch: Microbatch) -> list[pb.Microbatch]:
    """Return the message, in several parts where its columns are large; columns are little endian, row-major.

    Raises:
        RequestError: one column is larger than a message may be.
    """
    parts = [
        pb.Microbatch(
            microbatch=microbatch.index, columns=[_encode_column(column) for column in columns], continues=True
        )
        for columns in _cut(microbatch)
    ]
    parts[0].row_ids.extend(microbatch.row_ids.tolist())
    parts[-1].continues = False
    return parts


def _cut(microbatch: Microbatch) -> Iterator[list[Column]]:
    part: list[Column] = []
    for column in microbatch.columns:
        if column.values.nbytes > MAX_COLUMN_BYTES:
            raise RequestError(
                f"microbatch {microbatch.index} has {len(microbatch.row_ids)} rows: its {column.name} take "
                f"{column.values.nbytes} bytes, a message holds {MAX_COLUMN_BYTES}; use more microbatches"
            )
        if part and sum(each.values.nbytes for each in part) + column.values.nbytes > PART_BYTES:
            yield part
            part = []
        part.append(column)
    yield part


def _encode_column(column: Column) -> pb.Column:
    return pb.Column(
        name=column.name,
        data_type=_DATA_TYPES[column.values.dtype.str],
        shape=column.values.shape,
        data=column.values.tobytes(),
    )
