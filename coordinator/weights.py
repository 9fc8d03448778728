"""The weights that each stage of a model uses, and the bytes that a worker holds for them. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coordinator.choices import OptimizerName, Precision
from coordinator.partition import StageSlice
from coordinator.parts import ModelParts
from coordinator.sections import TrainSection

FP32_BYTES = 4
COMPUTE_BYTES = {Precision.FP32: 4, Precision.BF16: 2, Precision.FP16: 2}
"""Of an element in the type that layers compute in."""
_MOMENTS = 2
_COUNT_BYTES = 4
"""Of the updates that adamw counts for each tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """What a worker holds for its weights."""

    parameters: int
    gradients: int
    optimizer: int


@dataclass(frozen=True, slots=True)
class _Used:
    """Weights that a stage uses together."""

    elements: int
    tensors: int
    uses: int
    """Blocks of the stage that use them, each of which has a gradient of its own."""
    is_trained: bool
    shared: int | None
    """Place among what several blocks share; None where they are the stage's alone."""


def weight_bytes(
    parts: ModelParts, pieces: Sequence[StageSlice], *, num_layers: int, train: TrainSection
) -> WeightBytes:
    """Return the bytes of a worker that holds some stages of a model of so many layers."""
    stages = [tuple(_used(parts, piece, num_layers=num_layers, frozen=train.frozen_layers)) for piece in pieces]
    # What several stages of the worker use is held once.
    held = [used for stage in stages for used in stage if used.shared is None]
    held += {used.shared: used for stage in stages for used in stage if used.shared is not None}.values()
    trained = [used for used in held if used.is_trained]
    gradients = [sum(used.elements * used.uses for used in stage if used.is_trained) for stage in stages]
    compute = COMPUTE_BYTES[train.precision]
    is_fp32 = train.precision is Precision.FP32
    optimizer = 0
    if train.optimizer is OptimizerName.ADAMW:
        elements = sum(used.elements for used in trained)
        optimizer = _MOMENTS * FP32_BYTES * elements + _COUNT_BYTES * sum(used.tensors for used in trained)
    return WeightBytes(
        parameters=sum(used.elements for used in held) * (FP32_BYTES if is_fp32 else FP32_BYTES + compute),
        gradients=FP32_BYTES * sum(gradients) + (0 if is_fp32 else compute * max(gradients)),
        optimizer=optimizer,
    )


def _used(parts: ModelParts, piece: StageSlice, *, num_layers: int, frozen: int | None) -> Iterator[_Used]:
    is_first, is_last = piece.stage == 0, piece.first_layer + piece.num_layers == num_layers
    frozen_blocks = range(0 if frozen is None else frozen + 1)
    first, head = piece.first_layer + 1, num_layers + 1
    blocks = range(0 if is_first else first, first + piece.num_layers + is_last)
    if is_first:
        yield _Used(parts.embeddings.parameters, parts.embeddings.tensors, 1, 0 not in frozen_blocks, None)
    for layer in range(first, first + piece.num_layers):
        yield _Used(parts.layer.parameters, parts.layer.tensors, 1, layer not in frozen_blocks, None)
    if is_last:
        yield _Used(parts.head.parameters, parts.head.tensors, 1, head not in frozen_blocks, None)
    for place, shared in enumerate(parts.shared):
        uses = shared.uses_of(blocks)
        if uses:
            is_trained = not any(block in frozen_blocks for block in shared.blocks)
            yield _Used(shared.parameters, shared.tensors, uses, is_trained, place)
