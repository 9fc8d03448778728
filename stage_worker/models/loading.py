"""Makes the part of a model that one worker holds, and never more of it.

The whole model is built on the meta device, where it takes no memory; only the
modules of the worker's own blocks get memory and are filled.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stage_worker.models.families import family_of
from stage_worker.models.family import Family
from stage_worker.models.initialise import initialise
from stage_worker.models.loaded import LoadedModel, StageBlocks
from stage_worker.models.slices import StageSlice
from stage_worker.models.weights import WeightsError, WeightsFolder


def load_model(
    config: Any,
    *,
    slices: Sequence[StageSlice],
    num_stages: int,
    folder: Path | None,
    seed: int,
    device: torch.device,
) -> LoadedModel:
    """Return the worker's part of the model of ``config``, filled, on ``device``, in fp32.

    Args:
        config: fitted to the task; see ``stage_worker.models.config``.
        slices: the worker's stages.
        num_stages: of the whole model.
        folder: holds pretrained weights; None initialises everything.
        seed: of the job, for new parameters.
        device: where the blocks live.

    Raises:
        UnsupportedModelError: no family describes the model.
        WeightsError: the folder lacks a tensor, or has it in another shape.
        ValueError: a slice does not fit the model.
    """
    family = family_of(config.model_type)
    with torch.device("meta"):
        model = family.build(config)
    # Without a name the library attends eagerly and leaves the mask out, silently.
    assert config._attn_implementation is not None, "the config names no attention implementation"
    model.eval()
    config.architectures = [type(model).__name__]
    blocks = family.blocks(config)
    stages = {part.stage: StageBlocks(part, part.blocks(blocks)) for part in slices}
    prefixes = [prefix for stage in stages.values() for block in stage.blocks for prefix in block.modules]
    weights = WeightsFolder(folder, base_prefix=family.base_prefix) if folder is not None else None
    with weights if weights is not None else nullcontext():
        for prefix in prefixes:
            module = model.get_submodule(prefix)
            module.to_empty(device="cpu")
            _fill(model, family, prefix=prefix, weights=weights, seed=seed)
            _restore_buffers(module, family, config, prefix=prefix)
            module.to(device)
    return LoadedModel(config=config, family=family, model=model, device=device, num_stages=num_stages, stages=stages)


@torch.no_grad()
def _fill(model: nn.Module, family: Family, *, prefix: str, weights: WeightsFolder | None, seed: int) -> None:
    named = {f"{prefix}.{name}": p for name, p in model.get_submodule(prefix).named_parameters()}
    missing = [name for name in named if weights is None or not weights.has(name)]
    if weights is not None and missing and prefix not in family.new_in_a_task:
        raise WeightsError(f"the pretrained folder lacks {', '.join(missing)}; it is not a whole {family.model_type}")
    if missing:
        initialise(model, prefix=prefix, seed=seed)
    if weights is None:
        return
    for name in named.keys() - set(missing):
        tensor = weights.read(name)
        if tensor.shape != named[name].shape:
            raise WeightsError(
                f"{name} has shape {tuple(tensor.shape)} in the pretrained folder, "
                f"the model of this job needs {tuple(named[name].shape)}"
            )
        named[name].copy_(tensor)


def _restore_buffers(module: nn.Module, family: Family, config: Any, *, prefix: str) -> None:
    # Emptied modules have garbage in buffers that no file holds.
    known = family.buffers(config)
    for name, buffer in module.named_buffers(prefix=prefix):
        if name not in known:
            raise WeightsError(f"the family {family.model_type} does not say what the buffer {name} holds")
        buffer.copy_(known[name])
