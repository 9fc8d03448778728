"""Facts, shapes and microbatches as messages of takt.v1."""

from takt.v1 import data_pb2 as pb

from dataloader_svc.facts import DataFacts
from dataloader_svc.microbatches import Microbatch, StepShape

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


def encode_microbatch(microbatch: Microbatch) -> pb.Microbatch:
    """Return the message; columns are little endian, row-major."""
    return pb.Microbatch(
        microbatch=microbatch.index,
        row_ids=microbatch.row_ids.tolist(),
        columns=[
            pb.Column(
                name=column.name,
                data_type=_DATA_TYPES[column.values.dtype.str],
                shape=column.values.shape,
                data=column.values.tobytes(),
            )
            for column in microbatch.columns
        ],
    )
