"""A job's training step, laid out: which layers are where, in which order it is computed, and what a second time."""

from dataclasses import dataclass

from coordinator import choices
from coordinator.costs import CostModel
from coordinator.facts import ModelFacts
from coordinator.partition import StageSlice
from coordinator.problem import Problem, SpecError
from coordinator.rules import microbatches_of
from coordinator.schedule.actions import PlanError
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.limits import SizeError
from coordinator.schedule.plan import Plan, make_plan
from coordinator.schedule.recompute import Recompute
from coordinator.spec import JobSpec
from coordinator.stage_memory import memory_of_stages
from coordinator.stages import stages_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A training step of one replica."""

    partition: tuple[StageSlice, ...]
    """Layers of each stage, stage 0 first."""
    train: Plan
    recompute: Recompute
    """What the stages compute again."""


def lay_out(spec: JobSpec, model: ModelFacts, costs: CostModel | None) -> Layout:
    """Return the training step of a job that fits its model, and whose schedule is not to be chosen.

    Args:
        spec: of the job.
        model: its facts.
        costs: of its model, for a partition that is ``balanced``.

    Raises:
        SpecError: The plan breaks a rule, or stages are to be balanced and nothing is known of what layers cost, or
            no such ones were found that fit their devices.
    """
    train = train_plan(spec)
    partition = stages_of(spec, model, costs=costs, memory=memory_of_stages(spec, model, train))
    return Layout(partition=partition, train=train, recompute=_recompute(spec, partition, train))


def train_plan(spec: JobSpec) -> Plan:
    """Return the plan of a training step of one replica, for which neither model nor data need be known.

    Raises:
        SpecError: The plan breaks a rule; a figure shows where.
    """
    schedule, num_workers, num_slices = spec.schedule, spec.parallel.pp, spec.train.gradient_accumulation_steps
    try:
        if schedule.file is not None:
            return make_custom_plan(
                schedule.file,
                num_workers=num_workers,
                num_chunks=schedule.num_chunks,
                num_microbatches=num_slices * microbatches_of(spec),
            )
        return make_plan(
            schedule.name,
            num_workers=num_workers,
            num_chunks=schedule.num_chunks,
            num_microbatches=microbatches_of(spec),
            num_slices=num_slices,
            group_size=schedule.group_size,
            warmup=schedule.warmup,
        )
    except SizeError as error:
        raise SpecError([Problem(f"schedule.{error.option}", str(error).removeprefix(f"{error.option} "))]) from error
    except PlanError as error:
        message, _, figure = str(error).partition("\n")
        key = "schedule" if schedule.file is None else "schedule.file"
        raise SpecError([Problem(key, message, figure=figure)]) from error


def _recompute(spec: JobSpec, partition: tuple[StageSlice, ...], train: Plan) -> Recompute:
    layers, recompute = [piece.num_layers for piece in partition], spec.train.recompute
    match recompute:
        case choices.Recompute.NONE:
            return Recompute(parts=(0,) * len(layers))
        case choices.Recompute.FULL:
            return Recompute(parts=(1,) * len(layers))
        case choices.Recompute.EXCEPT_LAST:
            return Recompute(parts=(1,) * len(layers), kept_microbatch=train.num_step_microbatches - 1)
        case tuple():
            return Recompute.of_layers(recompute, layers=layers)
        case _:
            return Recompute.of_layers([recompute] * len(layers), layers=layers)
