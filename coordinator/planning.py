"""From a spec and its facts to everything that a run needs to know before it starts."""

from dataclasses import dataclass

from coordinator.facts import DataFacts, ModelFacts
from coordinator.partition import StageSlice, even_partition
from coordinator.problem import SpecError
from coordinator.rules import microbatches_of
from coordinator.schedule.plan import Plan, make_forward_plan, make_plan
from coordinator.schedule.simulate import Timeline, simulate
from coordinator.spec import JobSpec
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
    prediction: Timeline
    """A training step in unit costs: forward 1, backward 2, transfers free."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the job."""
        return self.data.total_steps

    def slices_of(self, worker: int) -> tuple[StageSlice, ...]:
        """Return the stages that ``worker`` holds, one a chunk, ascending.

        Raises:
            ValueError: There is no such worker.
        """
        pp_rank = self.topology.coordinates(worker).pp_rank
        return tuple(self.partition[stage] for stage in self.train.placement.stages_of(pp_rank))


def plan_job(spec: JobSpec, *, model: ModelFacts, data: DataFacts) -> JobPlan:
    """Return the plan of ``spec``. Starts nothing, takes milliseconds.

    Raises:
        SpecError: The job does not fit its model or its data.
        PlanError: The schedule cannot be planned, or its plan breaks a rule; the message shows where.
    """
    problems = check_facts(spec, model, data)
    if problems:
        raise SpecError(problems)
    topology = Topology(pp=spec.parallel.pp, dp=spec.parallel.dp, tp=spec.parallel.tp)
    train = make_plan(
        spec.schedule.name,
        num_workers=topology.pp,
        num_chunks=spec.schedule.num_chunks,
        num_microbatches=microbatches_of(spec),
        num_slices=spec.train.gradient_accumulation_steps,
    )
    evaluate = make_forward_plan(train.placement, num_microbatches=train.num_microbatches)
    return JobPlan(
        spec=spec,
        model=model,
        data=data,
        topology=topology,
        partition=even_partition(num_layers=model.num_layers, num_stages=train.placement.num_stages),
        train=train,
        evaluate=evaluate,
        prediction=simulate(train),
    )
