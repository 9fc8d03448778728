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
from stage_worker.models.objective import Objective
from stage_worker.models.running_statistics import check_running_statistics, fill_running_statistics
from stage_worker.models.slices import StageSlice
from stage_worker.models.uses import ParameterUses, uses_of
from stage_worker.models.weights import WeightsError, WeightsFolder


def load_model(
    config: Any,
    *,
    objective: Objective = Objective.CLASSIFICATION,
    slices: Sequence[StageSlice],
    layers_by_stage: Sequence[int],
    folder: Path | None,
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
        folder: holds pretrained weights; None initialises everything.
        seed: of the job, for new parameters.
        device: where the blocks live.
        frozen_layers: None trains everything; n leaves out what the embeddings and the first n layers use.

    Raises:
        UnsupportedModelError: no family describes the model, or a layer keeps running statistics that are not covered.
        WeightsError: the folder lacks a tensor, or has it in another shape.
        ValueError: a slice does not fit the model.
    """
    family = family_of(config.model_type, objective)
    with torch.device("meta"):
        model = family.build(config)
    # Without a name the library attends eagerly and leaves the mask out, silently.
    assert config._attn_implementation is not None, "the config names no attention implementation"
    model.eval()
    config.architectures = [type(model).__name__]
    blocks = family.blocks(config)
    check_running_statistics(model, blocks)
    uses = uses_of(model, blocks)
    stages = {part.stage: StageBlocks(part, part.blocks(blocks)) for part in slices}
    own = [index for stage in stages.values() for index in stage.blocks]
    weights = WeightsFolder(folder, base_prefix=family.base_prefix) if folder is not None else None
    with weights if weights is not None else nullcontext():
        _materialise(model, family, uses, own, prefixes=_prefixes(stages), weights=weights, seed=seed, device=device)
    held = {name: model.get_parameter(name) for name in _names(uses, own)}
    frozen = range(0 if frozen_layers is None else frozen_layers + 1)
    for name, parameter in held.items():
        parameter.requires_grad_(not any(index in frozen for index in uses.blocks_of(name)))
    return LoadedModel(
        config=config,
        family=family,
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


def _names(uses: ParameterUses, own: Sequence[int]) -> tuple[str, ...]:
    """Return the parameters that own blocks use, in canonical order."""
    used = {name for index in own for name in uses.by_block[index].values()}
    return tuple(name for name in uses.names if name in used)


def _materialise(
    model: nn.Module,
    family: Family,
    uses: ParameterUses,
    own: Sequence[int],
    *,
    prefixes: Sequence[str],
    weights: WeightsFolder | None,
    seed: int,
    device: torch.device,
) -> None:
    """Give memory to own modules and fill them; a tied parameter gets it once, under its own name."""
    aliases = {path: name for index in own for path, name in uses.by_block[index].items() if path != name}
    if weights is not None:
        _check_ties(aliases, weights)
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
        _fill(model, family, uses, prefix=prefix, aliases=aliases, weights=weights, seed=seed)
        filled = fill_running_statistics(
            module, prefix=prefix, weights=weights, may_be_new=prefix in family.new_in_a_task
        )
        _restore_buffers(module, family, model.config, prefix=prefix, but=filled)
        module.to(device)
    for path, name in aliases.items():
        _set(model, path, model.get_parameter(name))


def _check_ties(aliases: dict[str, str], weights: WeightsFolder) -> None:
    # The library leaves the tie out then, whatever its config says.
    for path, name in aliases.items():
        if weights.has(path) and weights.has(name) and not torch.equal(weights.read(path), weights.read(name)):
            raise WeightsError(
                f"the pretrained folder has different values for {path} and {name}, which its config ties; "
                "set tie_word_embeddings to false in its config.json, or leave one of them out"
            )


def _set(model: nn.Module, path: str, parameter: nn.Parameter) -> None:
    module, _, attribute = path.rpartition(".")
    setattr(model.get_submodule(module), attribute, parameter)


@torch.no_grad()
def _fill(
    model: nn.Module,
    family: Family,
    uses: ParameterUses,
    *,
    prefix: str,
    aliases: dict[str, str],
    weights: WeightsFolder | None,
    seed: int,
) -> None:
    paths = {f"{prefix}.{path}": p for path, p in model.get_submodule(prefix).named_parameters(remove_duplicate=False)}
    named = {path: parameter for path, parameter in paths.items() if path not in aliases}
    stored = {} if weights is None else {name: _stored_path(uses, weights, name) for name in named}
    missing = [name for name in named if stored.get(name) is None]
    if weights is not None and missing and prefix not in family.new_in_a_task:
        raise WeightsError(f"the pretrained folder lacks {', '.join(missing)}; it is not a whole {family.model_type}")
    if missing:
        initialise(model, prefix=prefix, seed=seed)
    if weights is None:
        return
    for name, path in stored.items():
        if path is None:
            continue
        tensor = weights.read(path)
        if tensor.shape != named[name].shape:
            raise WeightsError(
                f"{name} has shape {tuple(tensor.shape)} in the pretrained folder, "
                f"the model of this job needs {tuple(named[name].shape)}"
            )
        named[name].copy_(tensor)


def _stored_path(uses: ParameterUses, weights: WeightsFolder, name: str) -> str | None:
    # Some files hold a tied parameter under another of its names only.
    return next((path for path in uses.paths_of(name) if weights.has(path)), None)


def _restore_buffers(module: nn.Module, family: Family, config: Any, *, prefix: str, but: set[str]) -> None:
    # Emptied modules have garbage in buffers that no file holds.
    known = family.buffers(config)
    for name, buffer in module.named_buffers(prefix=prefix):
        if name in but:
            continue
        if name not in known:
            raise WeightsError(f"the family {family.model_type} does not say what the buffer {name} holds")
        buffer.copy_(known[name])
