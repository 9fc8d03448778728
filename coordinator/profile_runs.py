"""The short runs of a job in which its costs are measured. Pure."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from coordinator.choices import Microbatching, PartitionMethod, ScheduleName
from coordinator.facts import ModelFacts
from coordinator.partition import even_partition
from coordinator.rules import microbatches_of
from coordinator.schedule.actions import Op
from coordinator.schedule.one_f_one_b import order_1f1b
from coordinator.spec import JobSpec, parse_spec

NUM_STEPS = 10
_MOST_MICROBATCHES = 8
"""Of one step of a profile, where the pipeline needs no more; more only take longer."""
_SPLIT_FROM = 2
"""Microbatches beyond the workers of a pipeline, so that each stage splits two backwards at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRun:
    """One run: the job for some steps, all of its stages at once, one on each worker."""

    spec: JobSpec
    rows: int
    """Of every microbatch."""
    layers: tuple[int, ...]
    """Of each stage."""


def profile_runs(spec: JobSpec, model: ModelFacts) -> tuple[ProfileRun, ...]:
    """Return the runs that tell what the parts of a job's model cost.

    All have equal stages, and nothing is computed again. There are runs with whole backwards and runs that split them,
    because stages are loaded for the one or the other. Those with smaller or larger microbatches than the job's own
    come between its own, in an order in which a machine that gets slower meanwhile makes none of them look cheaper.
    """
    parallel = spec.parallel
    rows = max(1, round(spec.train.global_batch_size / (parallel.dp * _num_microbatches(spec))))
    # A forward follows the backward of as many microbatches as there are beyond a stage's warmup and one more.
    num_microbatches = max(min(microbatches_of(spec), _MOST_MICROBATCHES), parallel.pp + _SPLIT_FROM)
    even = tuple(piece.num_layers for piece in even_partition(num_layers=model.num_layers, num_stages=parallel.pp))
    own, other = rows, rows // 2 or 2 * rows
    kinds = ((own, False), (own, True), (other, True), (other, False), (own, True), (own, False))
    return tuple(
        _run(spec, rows=each, layers=even, num_microbatches=num_microbatches, splits=splits) for each, splits in kinds
    )


def _num_microbatches(spec: JobSpec) -> int:
    return microbatches_of(spec) * spec.train.gradient_accumulation_steps


def _run(spec: JobSpec, *, rows: int, layers: tuple[int, ...], num_microbatches: int, splits: bool) -> ProfileRun:
    document: dict[str, Any] = spec.model_dump(mode="json", by_alias=True)
    document["name"] = f"{spec.name[:55]}-profile"
    document["data"] |= {"microbatching": Microbatching.IN_ORDER, "record_rows": False, "drop_last": True}
    document["parallel"] |= {"partition": PartitionMethod.EVEN, "layers_per_stage": list(layers), "costs": None}
    document["schedule"] |= {
        "name": ScheduleName.CUSTOM if splits else ScheduleName.ONE_F_ONE_B,
        "num_chunks": 1,
        "num_microbatches": num_microbatches,
        "microbatch_size": None,
        "group_size": None,
        "warmup": None,
        "file": _split_plan(len(layers), num_microbatches) if splits else None,
    }
    document["train"] |= {
        "epochs": None,
        "max_steps": NUM_STEPS,
        "global_batch_size": rows * num_microbatches * spec.parallel.dp,
        "gradient_accumulation_steps": 1,
        "recompute": "none",
    }
    document["eval"] |= {"every_steps": None, "at_end": False}
    return ProfileRun(spec=parse_spec(document), rows=rows, layers=layers)


def _split_plan(num_stages: int, num_microbatches: int) -> str:
    """Return 1F1B as a custom plan whose backwards with a forward behind them are split around it.

    Right behind its I a W would be no W of its own, for the two are done as one backward then.
    """
    lines = []
    for stage in range(num_stages):
        order = list(order_1f1b(stage, num_stages=num_stages, num_microbatches=num_microbatches))
        steady = [
            at for at, (one, other) in enumerate(pairwise(order)) if (one.op, other.op) == (Op.BACKWARD, Op.FORWARD)
        ]
        for at in reversed(steady):
            whole, forward = order[at : at + 2]
            halves = whole._replace(op=Op.INPUT_GRADIENT), whole._replace(op=Op.WEIGHT_GRADIENT)
            order[at : at + 2] = [halves[0], forward, halves[1]]
        lines.append(",".join(map(str, order)))
    return "\n".join(lines) + "\n"
