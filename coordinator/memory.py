"""How much memory each worker of a job needs, in bytes. Pure.

What is counted is what training keeps: weights, their gradients, the optimizer's state, what forwards keep for
backwards, and what waits at the borders of stages. What a kernel needs while it runs, the libraries, and the rows of
an evaluation are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial

from coordinator.byte_size import shown
from coordinator.choices import BoundaryType
from coordinator.flight import FlightSizes, peak_borders, peak_flights
from coordinator.partition import StageSlice
from coordinator.parts import ModelParts
from coordinator.schedule.actions import Op
from coordinator.schedule.plan import Plan
from coordinator.sections import JobSpec
from coordinator.weights import COMPUTE_BYTES, FP32_BYTES, weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMemory:
    """Bytes of one worker."""

    parameters: int
    """Weights in fp32, and in the type that layers compute in where it is another one."""
    gradients: int
    """In fp32, one of each use of a weight; where layers compute in another type, one microbatch's in that as well."""
    optimizer: int
    """The optimizer's state."""
    activations: int
    """What microbatches hold from their forward to the end of their backward, at its most."""
    borders: int
    """Hidden states and their gradients that have arrived or are to be passed on, at their most."""

    @property
    def weights(self) -> int:
        """What it needs however few rows there are."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """All of it, as if each was at its most at once."""
        return self.weights + self.activations + self.borders

    @property
    def described(self) -> str:
        """Each kind by name, for a person."""
        return ", ".join(f"{each.name} {shown(getattr(self, each.name))}" for each in fields(self))


def predict_memory(
    spec: JobSpec, parts: ModelParts, *, hidden_size: int, partition: Sequence[StageSlice], plan: Plan
) -> tuple[WorkerMemory, ...]:
    """Return the memory of each worker of the replica that has the most rows, all as wide as they may be.

    Args:
        spec: of the job.
        parts: of its model.
        hidden_size: of its model.
        partition: layers of each stage, stage 0 first.
        plan: of a training step.
    """
    train, width = spec.train, spec.data.max_length
    compute_bytes = COMPUTE_BYTES[train.precision]
    sizes = FlightSizes(
        parts=parts,
        num_stages=len(partition),
        width=width,
        input_bytes=hidden_size * compute_bytes,
        recompute=train.recompute,
        frozen_layers=train.frozen_layers,
    )
    size, larger = divmod(-(-train.global_batch_size // spec.parallel.dp), plan.num_step_microbatches)
    rows = [size + (microbatch < larger) for microbatch in range(plan.num_step_microbatches)]
    splitting = {action.stage for order in plan.orders for action in order if action.op is Op.INPUT_GRADIENT}
    flights = []
    for piece in partition:
        flight = partial(sizes.flight, piece, splits_backward=piece.stage in splitting)
        by_rows = {count: flight(rows=count, is_last_microbatch=False) for count in set(rows)}
        flights.append([*(by_rows[count] for count in rows[:-1]), flight(rows=rows[-1], is_last_microbatch=True)])
    element_bytes = FP32_BYTES if train.boundary_dtype is BoundaryType.FP32 else compute_bytes
    messages = [count * width * hidden_size * element_bytes for count in rows]
    num_layers = sum(piece.num_layers for piece in partition)

    def memory(worker: int) -> WorkerMemory:
        pieces = [partition[stage] for stage in plan.placement.stages_of(worker)]
        weights = weight_bytes(parts, pieces, num_layers=num_layers, train=train)
        return WorkerMemory(
            parameters=weights.parameters,
            gradients=weights.gradients,
            optimizer=weights.optimizer,
            activations=peak_flights(plan.workers[worker], flights),
            borders=peak_borders(plan.workers[worker], messages, plan.placement),
        )

    return tuple(memory(worker) for worker in range(plan.placement.num_workers))
