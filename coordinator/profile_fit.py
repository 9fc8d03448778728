"""What a model's parts cost, from what stages and their parts took in runs of a job. Pure.

Of the update of a worker's parameters only the sum over its parts is measured. The workers' sums are linear equations
in the parts, and what these leave open the numbers of parameters share out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np
import numpy.typing as npt

from coordinator.costs import CostModel, PartCosts, TransferCosts
from coordinator.parts import ModelPart, ModelParts
from coordinator.trace.measured import MeasuredCosts

_OPS = ("F", "B", "I", "W")
_HINT = 1e-3
"""Weight of what parameters say beside what was measured."""
_BYTES = 4
"""Of an element of a gradient that replicas add up; fp32."""

Table = npt.NDArray[np.float64]
"""(sizes, 3): seconds of embeddings, one layer and the head, by size of microbatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run and what it tells."""

    rows: int
    """Of its microbatches."""
    layers: tuple[int, ...]
    """Of each stage."""
    held: tuple[tuple[int, ...], ...]
    """Stages of each worker of a replica."""
    costs: MeasuredCosts
    width: float
    """Mean width of its microbatches."""
    message_bytes: float
    """Mean size of what travelled between stages; 0 where nothing did."""

    @property
    def splits(self) -> bool:
        """Whether its stages split backwards, or some of them."""
        return any(op == "I" for _, op in self.costs.actions)

    def parts_of(self, *stages: int) -> list[float]:
        """Return how many embeddings, layers and heads ``stages`` have."""
        layers = sum(self.layers[stage] for stage in stages)
        return [float(0 in stages), float(layers), float(len(self.layers) - 1 in stages)]


def fitted_costs(
    runs: Sequence[MeasuredRun], parts: ModelParts, *, dp: int, device: str, optimizer: str, precision: str
) -> CostModel:
    """Return what embeddings, a layer and the head cost.

    Where runs had no split backward, or no whole one, that is worked out from the other; see `_halves`.

    Args:
        runs: those of the job's own microbatches first.
        parts: of the model.
        dp: replicas in the runs.
        device: that was measured.
        optimizer: as train.optimizer names it.
        precision: as train.precision names it.
    """
    sizes = sorted({run.rows for run in runs})
    tables = _tables(runs, sizes, parts)
    updates = _updates(runs, parts)
    own = [run for run in runs if run.rows == runs[0].rows]

    def costs_of(index: int, part: ModelPart) -> PartCosts:
        forward, backward, input_gradient, weight_gradient = (tuple(map(float, tables[op][:, index])) for op in _OPS)
        return PartCosts(
            forward_seconds=forward,
            backward_seconds=backward,
            input_gradient_seconds=input_gradient,
            weight_gradient_seconds=weight_gradient,
            optimizer_seconds=updates[index],
            parameter_bytes=part.parameters * _BYTES,
        )

    return CostModel(
        source="profile",
        device=device,
        optimizer=optimizer,
        precision=precision,
        rows=tuple(sizes),
        embeddings=costs_of(0, parts.embeddings),
        layers=(costs_of(1, parts.layer),),
        head=costs_of(2, parts.head),
        action_seconds=median(map(_action_seconds, own)),
        transfer=_transfer(runs),
        reduce_seconds_per_byte=median(_reduced(run, parts) for run in own) if dp > 1 else 0.0,
        step_seconds=median(run.costs.waits + (run.costs.vote if dp == 1 else 0.0) for run in own),
        first_backward_seconds=median(run.costs.first_backward for run in own),
    )


def _table(runs: Sequence[MeasuredRun], sizes: Sequence[int], op: str, *, split: bool) -> Table:
    """Return what each part takes in runs that split backwards, or in those that do not; NaN where none had the op."""
    table = np.full((len(sizes), 3), np.nan)
    for index, rows in enumerate(sizes):
        taken = [_taken(run, op) for run in runs if run.rows == rows and run.splits is split]
        for part, seconds in enumerate(zip(*taken, strict=True)):
            known = [each for each in seconds if each is not None]
            if known:
                table[index, part] = mean(known)
    return table


def _taken(run: MeasuredRun, op: str) -> tuple[float | None, float | None, float | None]:
    """Return what embeddings, the mean layer and the head of one run took; None where their stages never did the op."""
    done = {stage: time for (stage, each), time in run.costs.actions.items() if each == op}
    if not done:
        return None, None, None
    layer = math.fsum(time.layers for time in done.values()) / sum(run.layers[stage] for stage in done)
    first, last = done.get(0), done.get(len(run.layers) - 1)
    return None if first is None else first.embeddings, layer, None if last is None else last.head


def _action_seconds(run: MeasuredRun) -> float:
    return run.costs.action_seconds + mean(time.beside for time in run.costs.actions.values())


def _tables(runs: Sequence[MeasuredRun], sizes: Sequence[int], parts: ModelParts) -> dict[str, Table]:
    """Return what each part takes, by op.

    A stage that splits backwards has slower forwards and whole backwards than one that does not. Where both kinds of
    runs are there these two are those of the latter, and what a forward takes longer counts as part of I.
    """
    plain, split = ({op: _table(runs, sizes, op, split=each) for op in _OPS} for each in (False, True))
    forward, whole = (np.where(np.isnan(plain[op]), split[op], plain[op]) for op in ("F", "B"))
    longer = np.nan_to_num(split["F"] - forward)
    first, second = np.maximum(0.0, split["I"] + longer), split["W"]
    share = _halves(parts, round(mean(run.width for run in runs)))
    is_whole = np.isnan(first) | np.isnan(second)
    return {
        "F": forward,
        "B": np.where(np.isnan(whole), first + second, whole),
        "I": np.where(is_whole, whole * (1 - share), first),
        "W": np.where(is_whole, whole * share, second),
    }


def _halves(parts: ModelParts, width: int) -> npt.NDArray[np.float64]:
    """Return the share of W in a backward of embeddings, a layer and the head, by their operations.

    The backward of a linear layer has one matrix product for its input and one for its weights. That of attention has
    two for each of its forward, all of them part of I, and so is all that embeddings do.
    """
    shares = [0.0]
    for part in (parts.layer, parts.head):
        operations = part.forward_operations
        attention = operations.row_quadratic * width**2
        linear = operations.at(rows=1, width=width) - attention
        shares.append(linear / (2 * linear + 2 * attention) if linear + attention else 0.0)
    return np.array(shares)


def _updates(runs: Sequence[MeasuredRun], parts: ModelParts) -> list[float]:
    measured = [
        (run.parts_of(*run.held[worker % len(run.held)]), seconds)
        for run in runs
        for worker, seconds in run.costs.optimizer.items()
    ]
    return _solved(measured, [float(part.parameters) for part in _three(parts)])


def _reduced(run: MeasuredRun, parts: ModelParts) -> float:
    """Return what the worker that waits least spends on each byte of its gradients' sums over replicas."""
    parameters = [part.parameters for part in _three(parts)]
    held = [float(np.dot(run.parts_of(*stages), parameters)) for stages in run.held]
    return min(seconds / (_BYTES * max(1.0, held[worker % len(held)])) for worker, seconds in run.costs.reduce.items())


def _solved(measured: Sequence[tuple[Sequence[float], float]], hint: Sequence[float]) -> list[float]:
    """Return the seconds of each of three parts that come closest to those of their sums, nothing below 0.

    What the sums leave open is in proportion to ``hint``.
    """
    from scipy.optimize import nnls  # noqa: PLC0415  # takes a second

    seconds = np.array([each for _, each in measured])
    scale = float(seconds.mean())
    if scale == 0.0:
        return [0.0, 0.0, 0.0]
    # Ever so slightly each part is to have its share of one of each: own - share x (the three) = 0.
    shares = np.array(hint) / (sum(hint) or 1.0)
    hints = _HINT * (np.eye(3) - np.outer(shares, np.ones(3)))
    left = np.vstack([np.array([counts for counts, _ in measured]), hints])
    solution, _ = nnls(left, np.concatenate([seconds / scale, np.zeros(3)]))
    return [float(each) * scale for each in solution]


def _transfer(runs: Sequence[MeasuredRun]) -> TransferCosts:
    """Return the straight line through what messages of two sizes took, with neither part below 0."""
    rows, size = runs[0].rows, runs[0].message_bytes
    taken = mean(run.costs.transfer for run in runs if run.rows == rows)
    other = next((run for run in runs if run.rows != rows), runs[0])
    bytes_apart = size - other.message_bytes
    slope = (taken - other.costs.transfer) / bytes_apart if bytes_apart else 0.0
    slope = min(max(slope, 0.0), taken / size if size else 0.0)
    return TransferCosts(
        latency_seconds=max(0.0, taken - slope * size), seconds_per_byte=slope, bytes_per_row=size / rows
    )


def _three(parts: ModelParts) -> tuple[ModelPart, ModelPart, ModelPart]:
    return parts.embeddings, parts.layer, parts.head
