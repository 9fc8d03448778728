"""Which layout of a job takes the shortest step, by prediction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator.candidates import Candidate, applied, candidates_of, own_candidate, shapes
from coordinator.choices import ScheduleName
from coordinator.costs import CostModel
from coordinator.facts import ModelFacts
from coordinator.layout import lay_out
from coordinator.pricing import Basis, basis_of, predict, rows_of
from coordinator.problem import SpecError
from coordinator.schedule.plan import Plan, make_plan, num_commands
from coordinator.schedule.simulate import Costs, Timeline, simulate
from coordinator.spec import JobSpec

MAX_FORWARDS = 2**16
"""Forwards of all candidates together that are tried; a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate and what is predicted of it."""

    candidate: Candidate
    step: float
    """What a step takes, in the unit of its basis."""
    bubble_fraction: float
    peak_in_flight: float
    """Of the worker that holds most, in full-stage activations of the candidate's own microbatches."""
    num_commands: int
    is_own: bool
    """Whether it is what the job itself says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A candidate of which nothing is predicted."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Candidates, the best first; of such as take equally long the simpler one, with fewer chunks and commands."""

    ranked: tuple[Ranked, ...]
    left_out: tuple[LeftOut, ...]
    basis: Basis

    @property
    def best(self) -> Ranked:
        """What takes the shortest step."""
        return self.ranked[0]

    @property
    def own(self) -> Ranked | None:
        """What the job itself says; None where it leaves its schedule open."""
        return next((each for each in self.ranked if each.is_own), None)


def choose(spec: JobSpec, model: ModelFacts, costs: CostModel | None) -> Comparison:
    """Return the schedules and chunk counts that ``spec`` could take, which leaves them open.

    Raises:
        SpecError: None of them can be planned.
    """
    return compare(spec, model, costs, widely=False)


def compare(
    spec: JobSpec, model: ModelFacts, costs: CostModel | None, *, widely: bool = True, comm: float = 0.0
) -> Comparison:
    """Return the layouts that ``spec`` could have, its own among them.

    In units, a step of other microbatch counts has the same work in all, and a transfer takes as long.

    Args:
        spec: of the job; fits its model.
        model: its facts.
        costs: of its model, in seconds; None for predictions in units.
        widely: whether the number of microbatches and the partition may change too, not only schedule and chunks.
        comm: what a transfer takes, in units.

    Raises:
        SpecError: Not one of them can be planned.
    """
    candidates = candidates_of(spec, num_layers=model.num_layers, widely=widely)
    own = None if spec.schedule.name is ScheduleName.AUTO else own_candidate(spec)

    def plan_and_time(candidate: Candidate) -> tuple[Plan, Timeline]:
        changed = applied(spec, candidate)
        layout = lay_out(changed, model, costs)
        units = _scaled(rows_of(changed) / rows_of(spec), comm=comm)
        return layout.train, predict(changed, layout, costs, units=units)

    forwards = spec.parallel.pp * spec.train.gradient_accumulation_steps
    return _compared(candidates, own, plan_and_time, forwards=forwards, basis=basis_of(costs))


def compare_sizes(own: Candidate, *, num_workers: int, max_chunks: int, comm: float = 0.0) -> Comparison:
    """Return all schedules of at most ``max_chunks`` chunks beside ``own``, in units.

    Raises:
        PlanError: ``own`` cannot be planned.
    """
    counts = [own.num_microbatches]
    candidates = shapes(
        num_workers=num_workers, chunks=range(1, max_chunks + 1), microbatches=counts, partitions=[own.partition]
    )

    def plan_and_time(candidate: Candidate) -> tuple[Plan, Timeline]:
        plan = make_plan(
            candidate.schedule,
            num_workers=num_workers,
            num_chunks=candidate.num_chunks,
            num_microbatches=candidate.num_microbatches,
        )
        return plan, simulate(plan, Costs(comm=comm))

    return _compared(list(candidates), own, plan_and_time, forwards=num_workers, basis=Basis.UNITS)


def _scaled(scale: float, *, comm: float) -> Costs:
    return Costs(forward=scale, input_gradient=scale, weight_gradient=scale, comm=comm)


def _compared(
    candidates: Sequence[Candidate],
    own: Candidate | None,
    plan_and_time: Callable[[Candidate], tuple[Plan, Timeline]],
    *,
    forwards: int,
    basis: Basis,
) -> Comparison:
    """Return what is predicted of ``candidates`` and of ``own``, which must be possible where there is one."""
    if own is not None:
        candidates = [own, *(each for each in candidates if each != own)]
    tried, left_out = within_budget(candidates, forwards=forwards, own=own)
    ranked: list[Ranked] = []
    problem: SpecError | None = None
    for candidate in tried:
        try:
            plan, timeline = plan_and_time(candidate)
        except SpecError as error:
            if candidate == own:
                raise
            left_out.append(LeftOut(candidate=candidate, reason=error.problems[0].message))
            problem = problem or error
            continue
        ranked.append(
            Ranked(
                candidate=candidate,
                step=timeline.makespan,
                bubble_fraction=timeline.bubble_fraction,
                peak_in_flight=max(timeline.peak_in_flight),
                num_commands=num_commands(plan),
                is_own=candidate == own,
            )
        )
    if problem is not None and not ranked:
        raise problem
    return Comparison(ranked=tuple(sorted(ranked, key=_rank)), left_out=tuple(left_out), basis=basis)


def _rank(each: Ranked) -> tuple[float, tuple[int, int], int]:
    # Nine digits, so that the order of additions does not decide.
    return float(f"{each.step:.9g}"), each.candidate.preference, each.num_commands


def within_budget(
    candidates: Sequence[Candidate], *, forwards: int, own: Candidate | None
) -> tuple[list[Candidate], list[LeftOut]]:
    """Return those that are tried, the smallest plans first and ``own`` in any case, and the others.

    ``forwards`` are those of one chunk and one microbatch.
    """
    tried: list[Candidate] = []
    left_out: list[LeftOut] = []
    left = MAX_FORWARDS
    for candidate in sorted(candidates, key=lambda each: (each != own, each.num_chunks * each.num_microbatches)):
        size = forwards * candidate.num_chunks * candidate.num_microbatches
        if tried and size > left:
            reason = f"a step has {size} forwards, and {MAX_FORWARDS} of all candidates together are tried"
            left_out.append(LeftOut(candidate=candidate, reason=reason))
            continue
        tried.append(candidate)
        left -= size
    return tried, left_out
