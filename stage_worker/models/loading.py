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

from stage_worker.models.coverage import check_coverage, stored_path
from stage_worker.models.family import Family
from stage_worker.models.finite import is_finite
from stage_worker.models.initialise import initialise
from stage_worker.models.loaded import LoadedModel, StageBlocks
from stage_worker.models.memory import check_memory
from stage_worker.models.objective import Objective
from stage_worker.models.running_statistics import fill_running_statistics
from stage_worker.models.skeleton import Skeleton, build_skeleton
from stage_worker.models.slices import StageSlice
from stage_worker.models.tensor_files import WeightsError
from stage_worker.models.weights import WeightsFolder


def load_model(
    config: Any,
    *,
    objective: Objective = Objective.CLASSIFICATION,
    slices: Sequence[StageSlice],
    layers_by_stage: Sequence[int],
    folder: Path | None,
    shards: Sequence[str] | None = None,
    seed: int,
    device: torch.device,
    frozen_layers: int | None = None,
) -> LoadedModel:
    """Return the worker's part of the model of ``config``, filled, on ``device``, in fp32.

    Args:
        config: fitted to the task; see ``stage_worker.models.config``.
        objective: decides the head.
        slices: the worker's stages.
        layers_by_stage: layers of every stage of the whole model.
        folder: holds pretrained weights, or a checkpoint; None initialises everything.
        shards: names of the checkpoint's files of parameters, whatever stages they were written by; None where
            ``folder`` holds a pretrained model.
        seed: of the job, for new parameters.
        device: where the blocks live.
        frozen_layers: None trains everything; n leaves out what the embeddings and the first n layers use.

    Raises:
        UnsupportedModelError: no family describes the model, or a layer keeps running statistics that are not covered.
        ModelTooLargeError: the weights of the worker's part alone do not fit.
        WeightsError: the folder lacks a tensor, has it in another shape, or holds values that are not finite.
        ValueError: a slice does not fit the model.
    """
    # Without a name the library attends eagerly and leaves the mask out, silently.
    assert config._attn_implementation is not None, "the config names no attention implementation"
    skeleton = build_skeleton(config, objective)
    config.architectures = [type(skeleton.model).__name__]
    uses, model = skeleton.uses, skeleton.model
    stages = {part.stage: StageBlocks(part, part.blocks(skeleton.blocks)) for part in slices}
    own = [index for stage in stages.values() for index in stage.blocks]
    names = uses.names_in(own)
    check_memory(sum(model.get_parameter(name).numel() for name in names), device)
    prefix = skeleton.family.base_prefix
    weights = WeightsFolder(folder, base_prefix=prefix, shards=shards) if folder is not None else None
    with weights if weights is not None else nullcontext():
        if weights is not None:
            check_coverage(skeleton, own, weights)
        _materialise(skeleton, own, prefixes=_prefixes(stages), weights=weights, seed=seed, device=device)
    held = {name: model.get_parameter(name) for name in names}
    frozen = range(0 if frozen_layers is None else frozen_layers + 1)
    for name, parameter in held.items():
        parameter.requires_grad_(not any(index in frozen for index in uses.blocks_of(name)))
    return LoadedModel(
        config=config,
        family=skeleton.family,
        model=model,
        device=device,
        layers_by_stage=tuple(layers_by_stage),
        stages=stages,
        uses=uses,
        held=held,
    )


def _prefixes(stages: dict[int, StageBlocks]) -> tuple[str, ...]:
    """Return the modules of all own blocks, each once."""
    found = (prefix for stage in stages.values() for block in stage.blocks.values() for prefix in block.modules)
    return tuple(dict.fromkeys(found))


def _materialise(
    skeleton: Skeleton,
    own: Sequence[int],
    *,
    prefixes: Sequence[str],
    weights: WeightsFolder | None,
    seed: int,
    device: torch.device,
) -> None:
    """Give memory to own modules and fill them; a tied parameter gets it once, under its own name."""
    model, family = skeleton.model, skeleton.family
    aliases = {path: name for index in own for path, name in skeleton.uses.by_block[index].items() if path != name}
    for path in aliases:
        _set(model, path, nn.Parameter(torch.empty(0, device="meta")))
    elsewhere = dict.fromkeys(
        name.rpartition(".")[0]
        for name in aliases.values()
        if not any(name.startswith(f"{prefix}.") for prefix in prefixes)
    )
    for prefix in (*elsewhere, *prefixes):
        module = model.get_submodule(prefix)
        module.to_empty(device="cpu")
        _fill(skeleton, prefix=prefix, aliases=aliases, weights=weights, seed=seed)
        filled = fill_running_statistics(
            module,
            prefix=prefix,
            weights=weights,
            may_be_new=prefix in family.new_in_a_task and not (weights is not None and weights.is_checkpoint),
        )
        _restore_buffers(module, family, model.config, prefix=prefix, but=filled)
        module.to(device)
    for path, name in aliases.items():
        _set(model, path, model.get_parameter(name))


def _set(model: nn.Module, path: str, parameter: nn.Parameter) -> None:
    module, _, attribute = path.rpartition(".")
    setattr(model.get_submodule(module), attribute, parameter)


@torch.no_grad()
def _fill(
    skeleton: Skeleton, *, prefix: str, aliases: dict[str, str], weights: WeightsFolder | None, seed: int
) -> None:
    module = skeleton.model.get_submodule(prefix)
    paths = {f"{prefix}.{path}": p for path, p in module.named_parameters(remove_duplicate=False)}
    named = {path: parameter for path, parameter in paths.items() if path not in aliases}
    stored = {name: stored_path(skeleton, weights, name) if weights is not None else None for name in named}
    if None in stored.values():
        initialise(skeleton.model, prefix=prefix, seed=seed)
    for name, path in stored.items():
        if weights is None or path is None:
            continue
        named[name].copy_(weights.read(path))
        if not is_finite(named[name]):
            raise WeightsError(f"{path} in {weights.folder} has values that are infinite or no number")


def _restore_buffers(module: nn.Module, family: Family, config: Any, *, prefix: str, but: set[str]) -> None:
    # Emptied modules have garbage in buffers that no file holds.
    known = family.buffers(config)
    for name, buffer in module.named_buffers(prefix=prefix):
        if name in but:
            continue
        if name not in known:
            raise WeightsError(f"the family {family.model_type} does not say what the buffer {name} holds")
        buffer.copy_(known[name])
