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
from coordinator.flight import Flight, FlightSizes, peak_borders, peak_flights
from coordinator.partition import StageSlice
from coordinator.parts import ModelParts
from coordinator.schedule.actions import Op
from coordinator.schedule.plan import Plan
from coordinator.sections import JobSpec
from coordinator.weights import COMPUTE_BYTES, FP32_BYTES, WeightBytes, weight_bytes


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


class StepMemory:
    """What the parts of a training step hold, of the replica that has the most rows, all as wide as they may be."""

    def __init__(self, spec: JobSpec, parts: ModelParts, *, hidden_size: int, plan: Plan) -> None:
        """Take a job, what its model's parts hold, the size of its hidden states and the plan of a training step."""
        train, width = spec.train, spec.data.max_length
        compute_bytes = COMPUTE_BYTES[train.precision]
        self._parts, self._train, self._plan = parts, train, plan
        self._sizes = FlightSizes(
            parts=parts,
            num_stages=plan.placement.num_stages,
            width=width,
            input_bytes=hidden_size * compute_bytes,
            recompute=train.recompute,
            frozen_layers=train.frozen_layers,
        )
        size, larger = divmod(-(-train.global_batch_size // spec.parallel.dp), plan.num_step_microbatches)
        self._rows = [size + (microbatch < larger) for microbatch in range(plan.num_step_microbatches)]
        self._splitting = {action.stage for order in plan.orders for action in order if action.op is Op.INPUT_GRADIENT}
        element_bytes = FP32_BYTES if train.boundary_dtype is BoundaryType.FP32 else compute_bytes
        self._messages = [count * width * hidden_size * element_bytes for count in self._rows]

    def flights(self, piece: StageSlice) -> list[Flight]:
        """Return the flight of each microbatch of the step on a stage."""
        flight = partial(self._sizes.flight, piece, splits_backward=piece.stage in self._splitting)
        by_rows = {count: flight(rows=count, is_last_microbatch=False) for count in set(self._rows)}
        last = flight(rows=self._rows[-1], is_last_microbatch=True)
        return [*(by_rows[count] for count in self._rows[:-1]), last]

    def weights(self, pieces: Sequence[StageSlice], *, num_layers: int) -> WeightBytes:
        """Return what a worker of these stages of a model of so many layers holds for its weights."""
        return weight_bytes(self._parts, pieces, num_layers=num_layers, train=self._train)

    def borders(self, worker: int) -> int:
        """Return the most bytes that wait at the borders of a worker's stages."""
        return peak_borders(self._plan.workers[worker], self._messages, self._plan.placement)


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
    step = StepMemory(spec, parts, hidden_size=hidden_size, plan=plan)
    flights = {piece.stage: step.flights(piece) for piece in partition}
    num_layers = sum(piece.num_layers for piece in partition)

    def memory(worker: int) -> WorkerMemory:
        pieces = [partition[stage] for stage in plan.placement.stages_of(worker)]
        weights = step.weights(pieces, num_layers=num_layers)
        return WorkerMemory(
            parameters=weights.parameters,
            gradients=weights.gradients,
            optimizer=weights.optimizer,
            activations=peak_flights(plan.workers[worker], flights),
            borders=step.borders(worker),
        )

    return tuple(memory(worker) for worker in range(plan.placement.num_workers))
