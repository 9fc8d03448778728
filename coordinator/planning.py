"""From a spec and its facts to everything that a run needs to know before it starts."""

from dataclasses import dataclass

from coordinator.candidates import applied
from coordinator.choice import Comparison, choose
from coordinator.choices import ScheduleName
from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.layout import lay_out
from coordinator.memory import WorkerMemory, predict_memory
from coordinator.memory_limit import memory_problem
from coordinator.partition import StageSlice
from coordinator.pricing import Basis, basis_of, given_costs, known_costs, predict
from coordinator.problem import SpecError
from coordinator.rules import microbatches_of
from coordinator.schedule.plan import Plan, make_forward_plan
from coordinator.schedule.recompute import Recompute
from coordinator.schedule.simulate import Timeline
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
    recompute: Recompute
    """What the stages compute again in a training step."""
    choice: Comparison | None
    """What the schedule was chosen of, where ``spec`` leaves it open; the best one was taken."""
    prediction: Timeline
    """A training step by the job's own costs where it has some; else in unit costs: forward 1, backward 2, what is
    computed again 1, transfers free."""
    basis: Basis
    """What ``prediction`` is made of: seconds or units."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the job."""
        return self.data.total_steps

    @property
    def memory(self) -> tuple[WorkerMemory, ...] | None:
        """What each worker of one replica needs by prediction; None where nothing is known of the model's parts."""
        if self.model.parts is None:
            return None
        return predict_memory(
            self.spec, self.model.parts, hidden_size=self.model.hidden_size, partition=self.partition, plan=self.train
        )

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
    costs, choice, resolved = given_costs(spec, model), None, spec
    known = known_costs(spec, model)
    if spec.schedule.name is ScheduleName.AUTO:
        choice = choose(spec, model, known)
        resolved = applied(spec, choice.best.candidate)
    layout = lay_out(resolved, model, known)
    if model.parts is not None:
        problem = memory_problem(
            spec, model.parts, hidden_size=model.hidden_size, partition=layout.partition, plan=layout.train
        )
        if problem is not None:
            raise SpecError([problem])
    return JobPlan(
        spec=spec,
        model=model,
        data=data,
        topology=Topology(pp=spec.parallel.pp, dp=spec.parallel.dp, tp=spec.parallel.tp),
        partition=layout.partition,
        train=layout.train,
        evaluate=make_forward_plan(layout.train.placement, num_microbatches=microbatches_of(spec)),
        recompute=layout.recompute,
        choice=choice,
        prediction=predict(spec, layout, costs),
        basis=basis_of(costs),
    )
