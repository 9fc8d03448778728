"""The stages that a job asks for."""

from coordinator.facts import ModelFacts
from coordinator.partition import StageSlice, even_partition, explicit_partition
from coordinator.sections import JobSpec


def num_stages_of(spec: JobSpec) -> int:
    """Return the stages of one replica."""
    return spec.parallel.pp * spec.schedule.num_chunks


def stages_of(spec: JobSpec, model: ModelFacts) -> tuple[StageSlice, ...]:
    """Return the layers of each stage, stage 0 first.

    Raises:
        PartitionError: The model's layers cannot be shared out like this.
    """
    sizes = spec.parallel.layers_per_stage
    if sizes is not None:
        return explicit_partition(sizes, num_layers=model.num_layers)
    return even_partition(num_layers=model.num_layers, num_stages=num_stages_of(spec))
