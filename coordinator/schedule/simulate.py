"""Predicts a step's timeline from the costs of one stage, or of each."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.schedule.actions import Action, Op, PlanError
from coordinator.schedule.execute import execute
from coordinator.schedule.in_flight import peak_in_flight
from coordinator.schedule.placement import Placement
from coordinator.schedule.plan import Plan
from coordinator.schedule.recompute import BACKWARD_BEGINS, Recompute, peak_activations
from coordinator.schedule.stage_costs import StageCosts

_MOST_COMM = 1e6  # of the shortest compute cost; with far more, rounding would leave actions without a length


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one microbatch costs on one full stage, in one unit of time.

    Raises:
        PlanError: A cost is no finite number, a compute cost is not above 0, or ``comm`` is below 0 or more than
            a million times the shortest compute cost.
    """

    forward: float = 1.0
    input_gradient: float = 1.0
    weight_gradient: float = 1.0
    comm: float = 0.0
    """One way between two workers; messages on their way do not hold each other up."""

    @property
    def backward(self) -> float:
        """A whole backward."""
        return self.input_gradient + self.weight_gradient

    def __post_init__(self) -> None:
        for name, cost in (
            ("forward", self.forward),
            ("input_gradient", self.input_gradient),
            ("weight_gradient", self.weight_gradient),
        ):
            if not (math.isfinite(cost) and cost > 0):
                raise PlanError(f"cost {name} is {cost}, need a finite number above 0")
        if not (math.isfinite(self.comm) and self.comm >= 0):
            raise PlanError(f"cost comm is {self.comm}, need a finite number, at least 0")
        most = _MOST_COMM * min(self.forward, self.input_gradient, self.weight_gradient)
        if self.comm > most:
            raise PlanError(f"cost comm is {self.comm:g}, need at most {most:.15g}, a million times the shortest other")


class Span(NamedTuple):
    """When one compute action runs, from the start of the step."""

    start: float
    end: float
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A step as predicted, in the unit of the costs, from 0 to ``makespan``."""

    workers: tuple[tuple[Span, ...], ...]
    """Per worker, its compute actions in order."""
    makespan: float
    ideal: float
    """What the busiest worker computes, its update included: the makespan with no bubble at all."""
    busy: tuple[float, ...]
    """Per worker, the time in which it computes."""
    bubbles: tuple[float, ...]
    """Per worker, the idle share of the makespan."""
    bubble_fraction: float
    """Idle share of the makespan, mean over workers."""
    peak_in_flight: tuple[float, ...]
    """Per worker, the most activations of microbatches in flight at once, counted in full stages."""
    peak_activations: tuple[float, ...]
    """Per worker, the most activations held at once, counted in full stages; less than ``peak_in_flight`` where
    some are computed again instead."""


def simulate(plan: Plan, costs: Costs | StageCosts | None = None, recompute: Recompute | None = None) -> Timeline:
    """Return the timeline of ``plan``; without ``costs`` a forward is 1, a backward 2, a transfer free.

    With ``Costs`` all stages cost the same, a chunk ``1 / num_chunks`` of a full stage, and the step's end nothing.
    With ``StageCosts`` the timeline is that of one step among others, from verdict to verdict: each worker first
    updates its parameters, and the last worker whose gradients are added up is the one that the vote waits for.
    What ``recompute`` says is computed again costs its share of a forward more, as part of the backward, or of ``I``
    where that is split.

    Raises:
        PlanError: The costs are not those of as many stages and workers as the plan has.
    """
    costs = costs or Costs()
    recompute = recompute or Recompute(parts=(0,) * plan.placement.num_stages)
    machine = _uneven(costs, plan.placement) if isinstance(costs, StageCosts) else _equal(costs, plan.placement)
    chunks, orders = plan.placement.num_chunks, plan.orders
    # Run in parts of a chunk and divide once, so that thirds do not add up rounding errors.
    whole, parts = recompute.whole, recompute.whole * machine.divisor
    first = next((each for order in orders for each in order if each.stage == 0 and each.op in BACKWARD_BEGINS), None)

    def duration(action: Action) -> float:
        again = recompute.parts_of(action) if action.op in BACKWARD_BEGINS else 0
        longer = machine.first_backward * parts if action == first else 0.0
        return machine.of(action.stage, action.op) * whole + machine.of(action.stage, Op.FORWARD) * again + longer

    starts = execute(
        plan.workers,
        placement=plan.placement,
        duration=duration,
        latency=lambda sender, receiver: machine.latency(sender, receiver) * parts,
        free=[time * parts for time in machine.optimizer],
    )
    workers = tuple(
        tuple(
            Span(start / parts, (start + duration(action)) / parts, action)
            for start, action in zip(own, order, strict=True)
        )
        for own, order in zip(starts, orders, strict=True)
    )
    busy = tuple(sum(map(duration, order)) / parts + own for order, own in zip(orders, machine.optimizer, strict=True))
    ends = (spans[-1].end + own for spans, own in zip(workers, machine.reduce, strict=True))
    makespan = max(ends) + machine.step_end
    return Timeline(
        workers=workers,
        makespan=makespan,
        ideal=max(busy),
        busy=busy,
        bubbles=tuple(1 - time / makespan for time in busy),
        bubble_fraction=1 - sum(busy) / (len(workers) * makespan),
        peak_in_flight=tuple(peak_in_flight(worker)[0] / chunks for worker in plan.workers),
        peak_activations=tuple(peak_activations(worker, recompute) / (whole * chunks) for worker in plan.workers),
    )


class _Machine(NamedTuple):
    """What things take where a plan is run."""

    of: Callable[[int, Op], float]
    """A compute op on a stage, ``divisor`` times too long."""
    divisor: int
    latency: Callable[[int, int], float]
    """From one stage to another on another worker."""
    reduce: Sequence[float]
    """By worker."""
    optimizer: Sequence[float]
    """By worker."""
    step_end: float
    first_backward: float


def _equal(costs: Costs, placement: Placement) -> _Machine:
    times = {
        Op.FORWARD: costs.forward,
        Op.BACKWARD: costs.backward,
        Op.INPUT_GRADIENT: costs.input_gradient,
        Op.WEIGHT_GRADIENT: costs.weight_gradient,
    }
    nothing = (0.0,) * placement.num_workers
    return _Machine(lambda _, op: times[op], placement.num_chunks, lambda *_: costs.comm, nothing, nothing, 0.0, 0.0)


def _uneven(costs: StageCosts, placement: Placement) -> _Machine:
    for name, count, needed in (
        ("stages", len(costs.forward), placement.num_stages),
        ("workers", len(costs.reduce), placement.num_workers),
    ):
        if count != needed:
            raise PlanError(f"costs are those of {count} {name}, but the plan has {needed}")

    def latency(sender: int, receiver: int) -> float:
        return costs.transfer[min(sender, receiver)]

    return _Machine(costs.of, 1, latency, costs.reduce, costs.optimizer, costs.step_end, costs.first_backward)
