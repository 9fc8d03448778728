"""Which layout of a job takes the shortest step, by prediction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from coordinator.byte_size import bytes_of
from coordinator.candidates import Candidate, applied, candidates_of, own_candidate, shapes
from coordinator.choices import ScheduleName
from coordinator.costs import CostModel
from coordinator.facts import ModelFacts
from coordinator.layout import Layout, lay_out
from coordinator.memory import predict_memory
from coordinator.pricing import Basis, basis_of, predict, rows_of
from coordinator.problem import SpecError
from coordinator.schedule.plan import Plan, make_plan, num_commands
from coordinator.schedule.simulate import Costs, Timeline, simulate
from coordinator.spec import JobSpec
from coordinator.stages import stages_of

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
    memory_bytes: int | None
    """What the fullest worker needs of its device; None where nobody asked for the sizes of the model's parts."""
    fits: bool | None
    """Whether that is within limits.device_memory_bytes; None where one of the two is not known."""
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
    """Candidates, the best first: what fits, of these the shortest, of as long ones the simpler one, with fewer chunks
    and commands; behind them what does not fit, the one that needs least first."""

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
    candidates = candidates_of(spec, num_layers=model.num_layers, widely=widely, can_balance=costs is not None)
    candidates = [each for each in candidates if _is_apart(each, spec, model, costs)]
    own = None if spec.schedule.name is ScheduleName.AUTO else own_candidate(spec)

    def predicted(candidate: Candidate) -> _Predicted:
        changed = applied(spec, candidate)
        layout = lay_out(changed, model, costs)
        units = _scaled(rows_of(changed) / rows_of(spec), comm=comm)
        timeline = predict(changed, layout, costs, units=units)
        return _Predicted(layout.train, timeline, _memory_bytes(changed, model, layout))

    forwards = spec.parallel.pp * spec.train.gradient_accumulation_steps
    given = spec.limits.device_memory_bytes
    limit = None if given is None else bytes_of(given)
    return _compared(candidates, own, predicted, forwards=forwards, basis=basis_of(costs), limit_bytes=limit)


def compare_sizes(own: Candidate, *, num_workers: int, max_chunks: int, comm: float = 0.0) -> Comparison:
    """Return all schedules of at most ``max_chunks`` chunks beside ``own``, in units.

    Raises:
        PlanError: ``own`` cannot be planned.
    """
    counts = [own.num_microbatches]
    candidates = shapes(
        num_workers=num_workers, chunks=range(1, max_chunks + 1), microbatches=counts, partitions=[own.partition]
    )

    def predicted(candidate: Candidate) -> _Predicted:
        plan = make_plan(
            candidate.schedule,
            num_workers=num_workers,
            num_chunks=candidate.num_chunks,
            num_microbatches=candidate.num_microbatches,
        )
        return _Predicted(plan, simulate(plan, Costs(comm=comm)), None)

    return _compared(list(candidates), own, predicted, forwards=num_workers, basis=Basis.UNITS, limit_bytes=None)


def _is_apart(candidate: Candidate, spec: JobSpec, model: ModelFacts, costs: CostModel | None) -> bool:
    """Whether another partition than the job's own may give other stages; where memory is limited it may."""
    alike = replace(candidate, partition=own_candidate(spec).partition)
    if alike == candidate or spec.limits.device_memory_bytes is not None:
        return True
    first, second = (stages_of(applied(spec, each), model, costs=costs) for each in (candidate, alike))
    return first != second


class _Predicted(NamedTuple):
    """What is known of a candidate."""

    plan: Plan
    timeline: Timeline
    memory_bytes: int | None


def _memory_bytes(spec: JobSpec, model: ModelFacts, layout: Layout) -> int | None:
    if model.parts is None:
        return None
    memory = predict_memory(
        spec, model.parts, hidden_size=model.hidden_size, partition=layout.partition, plan=layout.train
    )
    return max(worker.total for worker in memory)


def _scaled(scale: float, *, comm: float) -> Costs:
    return Costs(forward=scale, input_gradient=scale, weight_gradient=scale, comm=comm)


def _compared(
    candidates: Sequence[Candidate],
    own: Candidate | None,
    predict: Callable[[Candidate], _Predicted],
    *,
    forwards: int,
    basis: Basis,
    limit_bytes: int | None,
) -> Comparison:
    """Return what is predicted of ``candidates`` and of ``own``, which must be possible where there is one."""
    if own is not None:
        candidates = [own, *(each for each in candidates if each != own)]
    tried, left_out = within_budget(candidates, forwards=forwards, own=own)
    ranked: list[Ranked] = []
    problem: SpecError | None = None
    for candidate in tried:
        try:
            plan, timeline, memory_bytes = predict(candidate)
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
                memory_bytes=memory_bytes,
                fits=None if limit_bytes is None or memory_bytes is None else memory_bytes <= limit_bytes,
                num_commands=num_commands(plan),
                is_own=candidate == own,
            )
        )
    if problem is not None and not ranked:
        raise problem
    return Comparison(ranked=tuple(sorted(ranked, key=_rank)), left_out=tuple(left_out), basis=basis)


def _rank(each: Ranked) -> tuple[int, float, tuple[int, int], int]:
    # Nine digits, so that the order of additions does not decide.
    excess = each.memory_bytes or 0 if each.fits is False else 0
    return excess, float(f"{each.step:.9g}"), each.candidate.preference, each.num_commands


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
