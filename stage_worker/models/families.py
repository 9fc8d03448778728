"""Which model families Takt can train, and with which objectives."""

from collections.abc import Mapping

from stage_worker.models.family import Family
from stage_worker.models.objective import Objective

SUPPORTED: Mapping[str, tuple[Objective, ...]] = {
    "bert": (Objective.CLASSIFICATION,),
}
"""Objectives by ``model_type``."""


class UnsupportedModelError(ValueError):
    """A model that no family describes, or that the family cannot be cut from."""


def check_supported(model_type: str, objective: Objective) -> None:
    """Raise UnsupportedModelError where no family describes the model; imports no modelling code."""
    if model_type not in SUPPORTED:
        raise UnsupportedModelError(f"model_type {model_type!r} is not supported; use one of: {', '.join(SUPPORTED)}")
    if objective not in SUPPORTED[model_type]:
        able = [name for name, objectives in SUPPORTED.items() if objective in objectives]
        raise UnsupportedModelError(
            f"train.objective {objective} is not built for model_type {model_type!r}, which can be trained for: "
            f"{', '.join(SUPPORTED[model_type])}; {objective} is built for: {', '.join(able)}"
        )


def family_of(model_type: str, objective: Objective) -> Family:
    """Return the family; imports its modelling code, which takes seconds.

    Raises:
        UnsupportedModelError: no family describes the model.
    """
    check_supported(model_type, objective)
    match model_type, objective:
        case "bert", Objective.CLASSIFICATION:
            from stage_worker.models import bert  # noqa: PLC0415  the import is the cost

            return bert.CLASSIFICATION
        case _:
            raise AssertionError(f"{model_type} with {objective} is listed but has no family")
