"""What a model's parts cost, from what whole stages took in the runs of a profile. Pure.

Of a stage only the sum of its parts is measured. Runs with other sizes of stages tell the parts apart, as unknowns of
linear equations; where they do not, as with one layer on each stage, operations and parameters share the sum out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np
import numpy.typing as npt

from coordinator.costs import CostModel, PartCosts, TransferCosts
from coordinator.parts import ModelPart, ModelParts
from coordinator.trace.measured import MeasuredCosts

_HINT = 1e-3
"""Weight of what operations and parameters say beside what was measured."""
_BYTES = 4
"""Of a gradient that replicas add up; fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run of a profile and what it tells; one stage on each worker of a replica."""

    rows: int
    layers: tuple[int, ...]
    costs: MeasuredCosts
    width: float
    """Mean width of its microbatches."""
    message_bytes: float
    """Mean size of what travelled between stages; 0 where nothing did."""


def fitted_costs(
    runs: Sequence[MeasuredRun], parts: ModelParts, *, dp: int, device: str, optimizer: str, precision: str
) -> CostModel:
    """Return what embeddings, a layer and the head cost.

    Args:
        runs: those of the job's own microbatches first.
        parts: of the model.
        dp: replicas in the runs.
        device: that was measured.
        optimizer: as train.optimizer names it.
        precision: as train.precision names it.
    """
    sizes = sorted({run.rows for run in runs})
    tables = {op: np.array([_parts_of(runs, rows, op, parts) for rows in sizes]) for op in ("F", "B", "I", "W")}
    updates = _updates(runs, parts)

    def costs_of(index: int, part: ModelPart) -> PartCosts:
        return PartCosts(
            forward_seconds=tuple(map(float, tables["F"][:, index])),
            backward_seconds=tuple(map(float, tables["B"][:, index])),
            input_gradient_seconds=tuple(map(float, tables["I"][:, index])),
            weight_gradient_seconds=tuple(map(float, tables["W"][:, index])),
            optimizer_seconds=float(updates[index]),
            parameter_bytes=part.parameters * _BYTES,
        )

    own = [run for run in runs if run.rows == runs[0].rows]
    return CostModel(
        source="profile",
        device=device,
        optimizer=optimizer,
        precision=precision,
        rows=tuple(sizes),
        embeddings=costs_of(0, parts.embeddings),
        layers=(costs_of(1, parts.layer),),
        head=costs_of(2, parts.head),
        action_seconds=median(run.costs.action_seconds for run in own),
        transfer=_transfer(runs),
        reduce_seconds_per_byte=median(_reduced(run, parts) for run in own) if dp > 1 else 0.0,
        step_seconds=median(run.costs.waits + (run.costs.vote if dp == 1 else 0.0) for run in own),
    )


def _parts_of(runs: Sequence[MeasuredRun], rows: int, op: str, parts: ModelParts) -> list[float]:
    """Return seconds of embeddings, one layer and the head in microbatches of ``rows``."""
    equations, seconds = [], []
    for run in runs:
        if run.rows != rows:
            continue
        for stage, layers in enumerate(run.layers):
            if (stage, op) in run.costs.actions:
                equations.append([float(stage == 0), float(layers), float(stage == len(run.layers) - 1)])
                seconds.append(run.costs.actions[stage, op])
    width = round(mean(run.width for run in runs if run.rows == rows))
    operations = [part.forward_operations.at(rows=rows, width=width) for part in _three(parts)]
    return _solved(np.array(equations), np.array(seconds), operations)


def _reduced(run: MeasuredRun, parts: ModelParts) -> float:
    """Return what the worker that waits least spends on each byte of its gradients' sums over replicas."""
    last = len(run.layers) - 1
    counts = [
        parts.layer.parameters * layers
        + parts.embeddings.parameters * (stage == 0)
        + parts.head.parameters * (stage == last)
        for stage, layers in enumerate(run.layers)
    ]
    return min(
        seconds / (_BYTES * max(1, counts[worker % len(counts)])) for worker, seconds in run.costs.reduce.items()
    )


def _updates(runs: Sequence[MeasuredRun], parts: ModelParts) -> list[float]:
    equations, seconds = [], []
    for run in runs:
        for worker, taken in run.costs.optimizer.items():
            stage = worker % len(run.layers)
            equations.append([float(stage == 0), float(run.layers[stage]), float(stage == len(run.layers) - 1)])
            seconds.append(taken)
    parameters = [float(part.parameters) for part in _three(parts)]
    return _solved(np.array(equations), np.array(seconds), parameters)


def _solved(equations: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64], hint: Sequence[float]) -> list[float]:
    """Return what solves ``equations`` best, nothing below 0; what they leave open is in proportion to ``hint``."""
    from scipy.optimize import nnls  # noqa: PLC0415  # takes a second

    whole = sum(hint) or 1.0
    scale = float(seconds.mean()) if len(seconds) else 0.0
    # Each part is to have its share of all three, ever so slightly: (1 - share) x own - share x others = 0.
    shares = [each / whole for each in hint]
    hints = np.array([[float(part == other) - share for other in range(3)] for part, share in enumerate(shares)])
    if scale == 0.0:
        return [0.0, 0.0, 0.0]
    left = np.vstack([equations, _HINT * hints])
    right = np.concatenate([seconds / scale, np.zeros(3)])
    solution, _ = nnls(left, right)
    return [float(each) * scale for each in solution]


def _transfer(runs: Sequence[MeasuredRun]) -> TransferCosts:
    """Return the straight line through what messages of two sizes took, with neither part below 0."""
    own, other = runs[0], runs[-1]
    per_row = own.message_bytes / own.rows
    taken, bytes_apart = own.costs.transfer, own.message_bytes - other.message_bytes
    slope = (taken - other.costs.transfer) / bytes_apart if bytes_apart else 0.0
    slope = min(max(slope, 0.0), taken / own.message_bytes if own.message_bytes else 0.0)
    return TransferCosts(
        latency_seconds=max(0.0, taken - slope * own.message_bytes), seconds_per_byte=slope, bytes_per_row=per_row
    )


def _three(parts: ModelParts) -> tuple[ModelPart, ModelPart, ModelPart]:
    return parts.embeddings, parts.layer, parts.head
