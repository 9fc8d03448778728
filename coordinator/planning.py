"""From a spec and its facts to everything that a run needs to know before it starts."""

from dataclasses import dataclass

from coordinator import choices
from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.partition import StageSlice
from coordinator.problem import Problem, SpecError
from coordinator.rules import microbatches_of
from coordinator.schedule.actions import PlanError
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.limits import SizeError
from coordinator.schedule.plan import Plan, make_forward_plan, make_plan
from coordinator.schedule.recompute import Recompute
from coordinator.schedule.simulate import Timeline, simulate
from coordinator.spec import JobSpec
from coordinator.stages import stages_of
from coordinator.topology import Topology
from coordinator.validation import check_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A job that can run: checked, laid out, planned."""

    spec: JobSpec
    model: ModelFacts
    data: DataFacts
    topology: Topology
    partition: tuple[StageSlice, ...]
    """Layers of each stage, stage 0 first."""
    train: Plan
    """A training step of one replica."""
    evaluate: Plan
    """An evaluation step of one replica."""
    recompute: Recompute
    """What the stages compute again in a training step."""
    prediction: Timeline
    """A training step in unit costs: forward 1, backward 2, what is computed again 1, transfers free."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the job."""
        return self.data.total_steps

    @property
    def evaluated(self) -> tuple[Split, ...]:
        """Splits that are run forward only: the one to predict, else those for validation that have labelled rows."""
        predicted = self.spec.predict.split
        if predicted is not None:
            return tuple(split for split in self.data.splits if split.name == predicted)
        return self.data.evaluated_splits

    def slices_of(self, worker: int) -> tuple[StageSlice, ...]:
        """Return the stages that ``worker`` holds, one a chunk, ascending.

        Raises:
            ValueError: There is no such worker.
        """
        pp_rank = self.topology.coordinates(worker).pp_rank
        return tuple(self.partition[stage] for stage in self.train.placement.stages_of(pp_rank))


def plan_job(spec: JobSpec, *, model: ModelFacts, data: DataFacts) -> JobPlan:
    """Return the plan of ``spec``. Starts nothing; takes milliseconds, a large plan seconds.

    Raises:
        SpecError: The job does not fit its model or its data, or its plan breaks a rule.
    """
    problems = check_facts(spec, model, data)
    if problems:
        raise SpecError(problems)
    train = train_plan(spec)
    partition = stages_of(spec, model)
    recompute = _recompute(spec, partition, train)
    return JobPlan(
        spec=spec,
        model=model,
        data=data,
        topology=Topology(pp=spec.parallel.pp, dp=spec.parallel.dp, tp=spec.parallel.tp),
        partition=partition,
        train=train,
        evaluate=make_forward_plan(train.placement, num_microbatches=microbatches_of(spec)),
        recompute=recompute,
        prediction=simulate(train, recompute=recompute),
    )


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
