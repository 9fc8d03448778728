"""Which layers each stage holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate


class PartitionError(ValueError):
    """Layers that cannot be shared out over stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSlice:
    """The layers of one stage; stage 0 holds the embeddings too, the last one the head."""

    stage: int
    """Global stage, from 0."""
    first_layer: int
    """First of its layers, counted over the whole model from 0."""
    num_layers: int
    """Number of its layers, at least 1."""


def even_partition(*, num_layers: int, num_stages: int) -> tuple[StageSlice, ...]:
    """Return the slices of all stages: together every layer once, in order, none empty.

    Sizes differ by at most one, larger first: the last stage has the head to compute too.

    Raises:
        PartitionError: There is no stage, or there are more stages than layers.
    """
    if num_stages < 1:
        raise PartitionError(f"{num_stages} stages, need at least 1")
    if num_stages > num_layers:
        raise PartitionError(f"{num_stages} stages for {num_layers} layers, each stage needs at least 1 layer")
    size, larger = divmod(num_layers, num_stages)
    return explicit_partition([size + (stage < larger) for stage in range(num_stages)], num_layers=num_layers)


def explicit_partition(layers_per_stage: Sequence[int], *, num_layers: int) -> tuple[StageSlice, ...]:
    """Return the slices of stages of these sizes, stage 0 first: together every layer once, in order, none empty.

    Raises:
        PartitionError: A stage is empty, or the sizes do not add up to ``num_layers``.
    """
    if min(layers_per_stage, default=0) < 1:
        raise PartitionError(f"stages of {list(layers_per_stage)} layers, each stage needs at least 1 layer")
    if sum(layers_per_stage) != num_layers:
        raise PartitionError(f"stages of {sum(layers_per_stage)} layers in all, the model has {num_layers}")
    return tuple(_slices(layers_per_stage))


def _slices(sizes: Sequence[int]) -> Iterator[StageSlice]:
    for stage, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        yield StageSlice(stage=stage, first_layer=end - size, num_layers=size)
