"""The stages that a job asks for."""

from coordinator.balanced import LayerCosts, balanced_sizes
from coordinator.choices import PartitionMethod, Recompute
from coordinator.costs import CostModel, PartCosts, at_rows
from coordinator.device_memory import DeviceMemory, sizes_in_memory
from coordinator.facts import ModelFacts
from coordinator.partition import PartitionError, StageSlice, even_partition, explicit_partition
from coordinator.problem import Problem, SpecError
from coordinator.rules import microbatches_of
from coordinator.sections import JobSpec

_NANOSECONDS = 10**9


def stages_of(
    spec: JobSpec, model: ModelFacts, *, costs: CostModel | None = None, memory: DeviceMemory | None = None
) -> tuple[StageSlice, ...]:
    """Return the layers of each stage, stage 0 first.

    Args:
        spec: of a job that fits its model.
        model: its facts.
        costs: of its model, for a partition that is ``balanced``.
        memory: what such stages may take; None: as much as they need.

    Raises:
        SpecError: Stages are to be balanced, and nothing is known of what layers cost, or no such ones were found that
            fit their devices.
    """
    sizes, num_stages = spec.parallel.layers_per_stage, spec.parallel.pp * spec.schedule.num_chunks
    if sizes is not None:
        return explicit_partition(sizes, num_layers=model.num_layers)
    if spec.parallel.partition is PartitionMethod.EVEN:
        return even_partition(num_layers=model.num_layers, num_stages=num_stages)
    if costs is None:
        told = "is balanced, but nothing is known of what layers cost; needs parallel.costs, which takt profile writes"
        raise SpecError([Problem("parallel.partition", told)])
    sizes = _balanced(spec, layer_costs(spec, costs, num_layers=model.num_layers), memory, num_stages=num_stages)
    return explicit_partition(sizes, num_layers=model.num_layers)


def _balanced(spec: JobSpec, costs: LayerCosts, memory: DeviceMemory | None, *, num_stages: int) -> tuple[int, ...]:
    if memory is None:
        sizes = balanced_sizes(costs, num_stages=num_stages)
        assert sizes is not None  # any stage has room for anything
        return sizes
    try:
        return sizes_in_memory(costs, memory)
    except PartitionError as error:
        message = f"is {spec.limits.device_memory_bytes}, but {error}"
        raise SpecError([Problem("limits.device_memory_bytes", message)]) from None


def layer_costs(spec: JobSpec, costs: CostModel, *, num_layers: int) -> LayerCosts:
    """Return what the work of a step costs by layer, in nanoseconds: all microbatches of a replica, and the update.

    A step begins with the update of stage 0 and ends with the sums of its gradients over replicas, and every other
    stage waits for both. So those of the embeddings make no stage slower than another, and those of the head count as
    far as they take longer.

    Of what is computed again only whole stages count; so many layers of every stage make none slower than another.

    Args:
        spec: of the job.
        costs: of its model.
        num_layers: of its model.
    """
    num_microbatches = spec.train.gradient_accumulation_steps * microbatches_of(spec)
    rows = spec.train.global_batch_size / (spec.parallel.dp * num_microbatches)
    reduce_seconds = costs.reduce_seconds_per_byte if spec.parallel.dp > 1 else 0.0
    again = {Recompute.FULL: num_microbatches, Recompute.EXCEPT_LAST: num_microbatches - 1}
    num_forwards = num_microbatches
    if isinstance(spec.train.recompute, Recompute):
        num_forwards += again.get(spec.train.recompute, 0)

    def work(part: PartCosts) -> float:
        forward = at_rows(part.forward_seconds, rows, costs.rows)
        backward = at_rows(part.backward_seconds, rows, costs.rows)
        return num_forwards * forward + num_microbatches * backward

    def once(part: PartCosts) -> float:
        return part.optimizer_seconds + reduce_seconds * part.parameter_bytes

    def nanoseconds(seconds: float) -> int:
        return round(seconds * _NANOSECONDS)

    layers = tuple(nanoseconds(work(part) + once(part)) for part in costs.layers)
    return LayerCosts(
        layers=layers if len(layers) == num_layers else layers * num_layers,
        first=nanoseconds(work(costs.embeddings) + costs.first_backward_seconds),
        last=nanoseconds(work(costs.head) + max(0.0, once(costs.head) - once(costs.embeddings))),
    )
