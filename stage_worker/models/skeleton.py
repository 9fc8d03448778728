"""A whole model on the meta device, where it takes no memory: what there is, before any part of it is loaded."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stage_worker.models.families import family_of
from stage_worker.models.family import Block, Family
from stage_worker.models.objective import Objective
from stage_worker.models.running_statistics import check_running_statistics
from stage_worker.models.uses import ParameterUses, uses_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """A model without values, and how it is cut."""

    family: Family
    model: nn.Module
    blocks: tuple[Block, ...]
    uses: ParameterUses

    def may_be_new(self, name: str) -> bool:
        """Whether a pretrained folder may lack a parameter, for its module is made for the task."""
        return any(name.startswith(f"{prefix}.") for prefix in self.family.new_in_a_task)


def build_skeleton(config: Any, objective: Objective) -> Skeleton:
    """Return the skeleton of the model of ``config``; imports its modelling code, which takes seconds.

    Raises:
        UnsupportedModelError: no family describes the model, or a layer keeps running statistics that are not covered.
    """
    family = family_of(config.model_type, objective)
    with torch.device("meta"):
        model = family.build(config)
    model.eval()
    blocks = family.blocks(config)
    check_running_statistics(model, blocks)
    return Skeleton(family=family, model=model, blocks=blocks, uses=uses_of(model, blocks))
