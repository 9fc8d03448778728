"""The part of a model that one worker holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stage_worker.models.family import Block, Family
from stage_worker.models.slices import StageSlice


@dataclass(frozen=True, slots=True)
class StageBlocks:
    """One stage's blocks, ready to be called."""

    slice: StageSlice
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A whole model's skeleton of which only the worker's own blocks have memory."""

    config: Any
    """The Hugging Face config; ``config.to_json_string()`` is the config.json of an export."""
    family: Family
    model: nn.Module
    device: torch.device
    num_stages: int
    stages: Mapping[int, StageBlocks]
    """This worker's stages by global index."""

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of all parameters of the whole model, in the order every worker agrees on."""
        return tuple(name for name, _ in self.model.named_parameters())

    @property
    def has_dropout(self) -> bool:
        """Whether training draws random numbers."""
        return any(isinstance(module, nn.Dropout) and module.p > 0 for module in self.model.modules())

    @property
    def num_parameters(self) -> int:
        """Elements of the worker's own parameters."""
        return sum(parameter.numel() for stage in self.stages for parameter in self.parameters(stage).values())

    def parameters(self, stage: int) -> dict[str, nn.Parameter]:
        """Return the parameters of one own stage by their Hugging Face names, in canonical order."""
        return {
            f"{prefix}.{name}": parameter
            for prefix, module in self.modules(stage)
            for name, parameter in module.named_parameters()
        }

    def state(self, stage: int) -> dict[str, torch.Tensor]:
        """Return what a checkpoint holds of one own stage: parameters and persistent buffers, by name."""
        return {
            f"{prefix}.{name}": tensor.detach()
            for prefix, module in self.modules(stage)
            for name, tensor in module.state_dict(keep_vars=True).items()
        }

    def modules(self, stage: int) -> Iterator[tuple[str, nn.Module]]:
        """Yield the modules of one own stage with their Hugging Face names, in canonical order."""
        for block in self.stages[stage].blocks:
            for prefix in block.modules:
                yield prefix, self.model.get_submodule(prefix)
