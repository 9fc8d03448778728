"""Which layers each stage holds."""

from dataclasses import dataclass


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
    return tuple(
        StageSlice(
            stage=stage, first_layer=stage * size + min(stage, larger), num_layers=size + (1 if stage < larger else 0)
        )
        for stage in range(num_stages)
    )
