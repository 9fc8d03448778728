"""What the parts of a model hold and cost."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from takt.v1 import workers_pb2

from coordinator.choices import PartitionMethod, ScheduleName
from coordinator.spec import JobSpec


def wants_parts(spec: JobSpec) -> bool:
    """Whether a job can only be planned by what its model's parts hold and cost."""
    return (
        spec.parallel.partition is PartitionMethod.BALANCED
        or spec.schedule.name is ScheduleName.AUTO
        or spec.limits.device_memory_bytes is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchSize:
    """A size that depends on the rows of a microbatch and on the square of their width at most."""

    fixed: float = 0.0
    """Of the whole microbatch, whatever its rows and width."""
    fixed_linear: float = 0.0
    """Of the whole microbatch, for each position."""
    fixed_quadratic: float = 0.0
    """Of the whole microbatch, for each pair of positions."""
    row: float = 0.0
    """Of a row, whatever its width."""
    row_linear: float = 0.0
    """Of a row, for each position."""
    row_quadratic: float = 0.0
    """Of a row, for each pair of positions."""

    @classmethod
    def of(cls, message: workers_pb2.MicrobatchSize) -> "MicrobatchSize":
        """Return the size that ``message`` carries."""
        return cls(**{each.name: getattr(message, each.name) for each in fields(cls)})

    def message(self) -> workers_pb2.MicrobatchSize:
        """Return the message that carries this size."""
        return workers_pb2.MicrobatchSize(**{each.name: getattr(self, each.name) for each in fields(self)})

    def at(self, *, rows: int, width: int) -> float:
        """Return the size of a microbatch; one without rows has none."""
        if rows == 0:
            return 0.0
        whole = self.fixed + self.fixed_linear * width + self.fixed_quadratic * width**2
        return whole + rows * (self.row + self.row_linear * width + self.row_quadratic * width**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """What one part of a model holds and costs."""

    parameters: int = 0
    """Elements of the parameters that no other block uses."""
    tensors: int = 0
    """Tensors that these are in."""
    forward_operations: MicrobatchSize = MicrobatchSize()
    """Floating-point operations of a forward's matrix products, 2 a multiply-add."""
    activation_bytes: MicrobatchSize = MicrobatchSize()
    """Bytes kept from a forward to its backward."""
    waiting_bytes: MicrobatchSize = MicrobatchSize()
    """Bytes kept between the two halves of a backward that is split."""

    @classmethod
    def of(cls, message: workers_pb2.ModelPart) -> "ModelPart":
        """Return the part that ``message`` carries."""
        return cls(
            parameters=message.parameters,
            tensors=message.tensors,
            forward_operations=MicrobatchSize.of(message.forward_operations),
            activation_bytes=MicrobatchSize.of(message.activation_bytes),
            waiting_bytes=MicrobatchSize.of(message.waiting_bytes),
        )

    def message(self) -> workers_pb2.ModelPart:
        """Return the message that carries this part."""
        return workers_pb2.ModelPart(
            parameters=self.parameters,
            tensors=self.tensors,
            forward_operations=self.forward_operations.message(),
            activation_bytes=self.activation_bytes.message(),
            waiting_bytes=self.waiting_bytes.message(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParameters:
    """Parameters that several blocks use: one copy on each worker, with a gradient for each of its blocks."""

    parameters: int
    """Their elements."""
    tensors: int
    """Tensors that these are in."""
    blocks: tuple[int, ...]
    """Blocks that use them: 0 the embeddings, 1 the first layer, the last one the head."""

    def uses_of(self, blocks: Iterable[int]) -> int:
        """Return how many of ``blocks`` use them."""
        return len({*self.blocks}.intersection(blocks))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """A model's parts, in the job's precision and attention.

    A stage holds what its parts do, added up, and what ``stage`` says.
    """

    embeddings: ModelPart
    layer: ModelPart
    """One layer; all are alike."""
    head: ModelPart
    """With the loss on its outputs."""
    stage: ModelPart
    """What every stage holds once, whatever its parts: its input, masks, angles of positions."""
    shared: tuple[SharedParameters, ...] = ()
    """Parameters that several blocks use, which the parts do not count."""

    @classmethod
    def of(cls, message: workers_pb2.ModelParts) -> "ModelParts":
        """Return the parts that ``message`` carries."""
        return cls(
            embeddings=ModelPart.of(message.embeddings),
            layer=ModelPart.of(message.layer),
            head=ModelPart.of(message.head),
            stage=ModelPart.of(message.stage),
            shared=tuple(
                SharedParameters(parameters=each.parameters, tensors=each.tensors, blocks=tuple(each.blocks))
                for each in message.shared
            ),
        )

    def message(self) -> workers_pb2.ModelParts:
        """Return the message that carries these parts."""
        return workers_pb2.ModelParts(
            embeddings=self.embeddings.message(),
            layer=self.layer.message(),
            head=self.head.message(),
            stage=self.stage.message(),
            shared=[
                workers_pb2.SharedParameters(parameters=each.parameters, tensors=each.tensors, blocks=each.blocks)
                for each in self.shared
            ],
        )
