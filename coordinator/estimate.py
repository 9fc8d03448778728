"""What a model's parts cost by their sizes alone, where nobody has measured them.

The constants are those of one thread of a CPU, so an estimate tells one part from another and one plan from another
rather than the time of a clock. Where computing is faster against memory, as on a GPU, optimizers weigh more than here.
"""

from coordinator.choices import OptimizerName, Precision
from coordinator.costs import CostModel, PartCosts, TransferCosts
from coordinator.parts import ModelPart, ModelParts
from coordinator.sections import JobSpec

OPERATIONS_PER_NANOSECOND = 50
"""Floating-point operations of matrix products, two a multiply-add."""
BYTES_PER_NANOSECOND = 10
"""Memory that is read or written."""
OPTIMIZER_BYTES = {OptimizerName.ADAMW: 28, OptimizerName.SGD: 12}
"""Memory traffic of an update for each element in fp32: weight, gradient and both moments are read, all but the
gradient written; SGD has no moments."""
ACTION_SECONDS = 1e-3
"""Beside the matrix products of a forward, a backward or half of one."""
LATENCY_SECONDS = 2e-4
TRANSFER_SECONDS_PER_BYTE = 1e-9
REDUCE_SECONDS_PER_BYTE = 2e-9
STEP_SECONDS = 4e-3
"""What ends a step."""

_GRADIENT_BYTES = 4
_ELEMENT_BYTES = {Precision.FP32: 4, Precision.BF16: 2, Precision.FP16: 2}
_NANOSECONDS = 10**9
_ROWS = (1, 2)  # what lies on the straight line through two is known of any number


def estimate(spec: JobSpec, parts: ModelParts, *, num_layers: int, hidden_size: int) -> CostModel:
    """Return what a job's model may cost, all rows as wide as ``data.max_length``; times are whole nanoseconds.

    A backward takes twice the operations of its forward, as many for the input as for the weights. Frozen layers and
    embeddings have a forward only; on a stage behind the first they would have half a backward too, which is left out.

    Args:
        spec: of the job.
        parts: of its model.
        num_layers: of its model.
        hidden_size: of its model.
    """
    frozen = spec.train.frozen_layers
    width, element_bytes = spec.data.max_length, _ELEMENT_BYTES[spec.train.precision]
    ends = _shared_by_ends(parts, num_layers=num_layers)

    def part(part: ModelPart, *, shared: int = 0, trains: bool = True) -> PartCosts:
        operations = [part.forward_operations.at(rows=rows, width=width) for rows in _ROWS]
        forward = tuple(round(count / OPERATIONS_PER_NANOSECOND) / _NANOSECONDS for count in operations)
        half = forward if trains else (0.0,) * len(_ROWS)
        trained = part.parameters + shared if trains else 0
        update = round(trained * OPTIMIZER_BYTES[spec.train.optimizer] / BYTES_PER_NANOSECOND)
        return PartCosts(
            forward_seconds=forward,
            backward_seconds=tuple(2 * seconds for seconds in half),
            input_gradient_seconds=half,
            weight_gradient_seconds=half,
            optimizer_seconds=update / _NANOSECONDS,
            parameter_bytes=trained * _GRADIENT_BYTES,
        )

    layer = part(parts.layer)
    layers = (layer,) if not frozen else (part(parts.layer, trains=False),) * frozen + (layer,) * (num_layers - frozen)
    return CostModel(
        source="estimate",
        device="cpu",
        optimizer=spec.train.optimizer,
        precision=spec.train.precision,
        rows=_ROWS,
        embeddings=part(parts.embeddings, shared=ends, trains=frozen is None),
        layers=layers,
        head=part(parts.head, shared=ends if frozen is None else 0),
        action_seconds=ACTION_SECONDS,
        transfer=TransferCosts(
            latency_seconds=LATENCY_SECONDS,
            seconds_per_byte=TRANSFER_SECONDS_PER_BYTE,
            bytes_per_row=float(width * hidden_size * element_bytes),
        ),
        reduce_seconds_per_byte=REDUCE_SECONDS_PER_BYTE,
        step_seconds=STEP_SECONDS,
        first_backward_seconds=0.0,
    )


def _shared_by_ends(parts: ModelParts, *, num_layers: int) -> int:
    """Return the elements that embeddings and head both use, each with a copy of its own to update: a tied table.

    What layers share has a copy on every stage, which makes none slower than another.
    """
    return sum(shared.parameters for shared in parts.shared if set(shared.blocks) == {0, num_layers + 1})
