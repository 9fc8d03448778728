"""Which model families Takt can train, and what is known of them without their modelling code."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from stage_worker.models.family import Family
from stage_worker.models.objective import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFacts:
    """What a job can be checked by before any worker has a model of the family."""

    objectives: tuple[Objective, ...]
    """What its models can be trained for."""
    head: str
    """Tensor that a folder with a trained head for classification has."""
    takes_token_types: bool = False
    positions_follow_pad: bool = False
    """Whether positions count from the pad id on, so that as many rows of the table are never used."""


FAMILIES: Mapping[str, FamilyFacts] = {
    "bert": FamilyFacts(
        objectives=(Objective.CLASSIFICATION, Objective.MASKED_LM),
        head="classifier.weight",
        takes_token_types=True,
    ),
    "albert": FamilyFacts(
        objectives=(Objective.CLASSIFICATION,),
        head="classifier.weight",
        takes_token_types=True,
    ),
    "roberta": FamilyFacts(
        objectives=(Objective.CLASSIFICATION,),
        head="classifier.out_proj.weight",
        positions_follow_pad=True,
    ),
    "distilbert": FamilyFacts(
        objectives=(Objective.CLASSIFICATION,),
        head="classifier.weight",
    ),
    "electra": FamilyFacts(
        objectives=(Objective.CLASSIFICATION,),
        head="classifier.out_proj.weight",
        takes_token_types=True,
    ),
    "gpt2": FamilyFacts(
        objectives=(Objective.CLASSIFICATION, Objective.CAUSAL_LM),
        head="score.weight",
    ),
    "llama": FamilyFacts(
        objectives=(Objective.CLASSIFICATION,),
        head="score.weight",
    ),
    "qwen2": FamilyFacts(
        objectives=(Objective.CLASSIFICATION,),
        head="score.weight",
    ),
}
"""By ``model_type``."""

SUPPORTED: Mapping[str, tuple[Objective, ...]] = {name: facts.objectives for name, facts in FAMILIES.items()}
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

    It is in the file of its ``model_type``, with ``_`` for ``-``, under the name of its objective, such as
    ``bert.MASKED_LM``.

    Raises:
        UnsupportedModelError: no family describes the model.
    """
    check_supported(model_type, objective)
    family: Family = getattr(import_module(f"stage_worker.models.{model_type.replace('-', '_')}"), objective.name)
    return family
