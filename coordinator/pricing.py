"""What a job's step takes: by measured costs, by estimated ones, or in units where nothing is known."""

import enum
from functools import lru_cache

from coordinator.costs import CostModel, CostsError, from_text, stage_costs
from coordinator.estimate import estimate
from coordinator.facts import ModelFacts
from coordinator.layout import Layout
from coordinator.problem import Problem, SpecError
from coordinator.rules import microbatches_of
from coordinator.schedule.simulate import Costs, Timeline, simulate
from coordinator.spec import JobSpec


class Basis(enum.StrEnum):
    """What predictions are made of."""

    PROFILE = "profile"
    """Seconds that were measured."""
    ESTIMATE = "estimate"
    """Seconds that the model's config lets expect; good for comparing, not for a clock."""
    UNITS = "units"
    """The forward of one full stage is 1, its backward 2."""


def given_costs(spec: JobSpec, model: ModelFacts) -> CostModel | None:
    """Return the costs that ``parallel.costs`` holds; None where it holds none.

    Raises:
        SpecError: They are those of a model of other layers.
    """
    if spec.parallel.costs is None:
        return None
    costs = _read(spec.parallel.costs)
    try:
        costs.check_layers(model.num_layers)
    except CostsError as error:
        raise SpecError([Problem("parallel.costs", str(error))]) from None
    return costs


def estimated_costs(spec: JobSpec, model: ModelFacts) -> CostModel | None:
    """Return what the model's config lets expect; None where nobody asked for the sizes of its parts."""
    if model.parts is None:
        return None
    return estimate(spec, model.parts, num_layers=model.num_layers, hidden_size=model.hidden_size)


def known_costs(spec: JobSpec, model: ModelFacts) -> CostModel | None:
    """Return the costs that the job holds, else those that are estimated; None where nothing is known.

    Raises:
        SpecError: Those that it holds are of a model of other layers.
    """
    return given_costs(spec, model) or estimated_costs(spec, model)


def basis_of(costs: CostModel | None) -> Basis:
    """Return what predictions by ``costs`` are made of."""
    return Basis.UNITS if costs is None else Basis(costs.source)


def predict(spec: JobSpec, layout: Layout, costs: CostModel | None, *, units: Costs | None = None) -> Timeline:
    """Return the timeline of a training step of ``spec``, which ``layout`` is of.

    Args:
        spec: of the job.
        layout: of its step.
        costs: of its model, in seconds; None for predictions in units.
        units: what one microbatch costs then.
    """
    if costs is None:
        return simulate(layout.train, units, layout.recompute)
    stages = stage_costs(costs, layout.partition, layout.train.placement, rows=rows_of(spec), dp=spec.parallel.dp)
    return simulate(layout.train, stages, layout.recompute)


def rows_of(spec: JobSpec) -> float:
    """Return the rows of a microbatch, the mean where they differ."""
    slices = spec.parallel.dp * spec.train.gradient_accumulation_steps
    return spec.train.global_batch_size / (slices * microbatches_of(spec))


def foreign(spec: JobSpec, costs: CostModel) -> list[str]:
    """Return what makes ``costs`` another job's than ``spec``, in words; nothing where they are its own."""
    told = []
    for key, measured, own in (
        ("train.optimizer", costs.optimizer, spec.train.optimizer),
        ("train.precision", costs.precision, spec.train.precision),
    ):
        if measured != own:
            told.append(f"parallel.costs was made with {key} {measured}, but the job has {own}; measure it again")
    return told


@lru_cache(maxsize=4)
def _read(text: str) -> CostModel:
    return from_text(text)
