"""The part of a model that one worker holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stage_worker.models.family import Block, Family
from stage_worker.models.slices import StageSlice
from stage_worker.models.uses import ParameterUses


@dataclass(frozen=True, slots=True)
class StageBlocks:
    """One stage's blocks, ready to be called."""

    slice: StageSlice
    blocks: Mapping[int, Block]
    """By their place among all blocks of the model, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A whole model's skeleton of which only the worker's own blocks have memory."""

    config: Any
    """The Hugging Face config; ``config.to_json_string()`` is the config.json of an export."""
    family: Family
    model: nn.Module
    device: torch.device
    layers_by_stage: tuple[int, ...]
    """Layers of every stage of the whole model."""
    stages: Mapping[int, StageBlocks]
    """This worker's stages by global index."""
    uses: ParameterUses
    held: Mapping[str, nn.Parameter]
    """The parameters that this worker's blocks use, in fp32, by name in canonical order."""

    @property
    def num_stages(self) -> int:
        """Stages of the whole model."""
        return len(self.layers_by_stage)

    @property
    def num_parameters(self) -> int:
        """Elements of the parameters that are held here."""
        return sum(parameter.numel() for parameter in self.held.values())

    @property
    def stage_of_block(self) -> tuple[int, ...]:
        """Stage of every block of the whole model."""
        layers = [stage for stage, count in enumerate(self.layers_by_stage) for _ in range(count)]
        return (0, *layers, self.num_stages - 1)

    def parameters(self, stage: int) -> dict[str, nn.Parameter]:
        """Return the parameters that one own stage uses, by name in canonical order."""
        names = {name for index in self.stages[stage].blocks for name in self.uses.by_block[index].values()}
        return {name: parameter for name, parameter in self.held.items() if name in names}

    def owned(self, stage: int) -> dict[str, nn.Parameter]:
        """Return the parameters that one own stage answers for: those that no earlier stage uses."""
        stage_of_block = self.stage_of_block
        return {
            name: parameter
            for name, parameter in self.parameters(stage).items()
            if stage_of_block[self.uses.blocks_of(name)[0]] == stage
        }

    def state(self, stage: int) -> dict[str, torch.Tensor]:
        """Return what a checkpoint holds of one own stage: parameters it answers for and persistent buffers."""
        parameters = {name: parameter.detach() for name, parameter in self.owned(stage).items()}
        buffers = {
            f"{prefix}.{name}": buffer
            for prefix, module in self.modules(stage)
            for name, buffer in module.state_dict(keep_vars=True).items()
            if not isinstance(buffer, nn.Parameter)
        }
        return parameters | buffers

    def modules(self, stage: int) -> Iterator[tuple[str, nn.Module]]:
        """Yield the modules of one own stage, each once, with their Hugging Face names, in canonical order."""
        prefixes = (prefix for block in self.stages[stage].blocks.values() for prefix in block.modules)
        for prefix in dict.fromkeys(prefixes):
            yield prefix, self.model.get_submodule(prefix)
