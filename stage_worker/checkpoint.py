"""A worker's share of a checkpoint: which shards there are, by stage, and what is in each.

The coordinator's manifest, which makes a checkpoint of them, comes last and elsewhere.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from stage_worker.engine.agreed import Agreed
from stage_worker.engine.failure import NonFiniteError
from stage_worker.models.finite import is_finite
from stage_worker.models.loaded import LoadedModel


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a checkpoint before it is written."""

    file: str
    """Name in the checkpoint's folder."""
    kind: str
    """parameters, optimizer, or model for its config.json."""
    stage: int
    tensors: Mapping[str, torch.Tensor]
    """Not copied: they change with the next update."""
    metadata: Mapping[str, str]
    text: str = ""
    """Content of a file without tensors."""


def shards_of(
    model: LoadedModel, *, optimizer_state: Callable[[int], Mapping[str, torch.Tensor]], agreed: Agreed
) -> tuple[Shard, ...]:
    """Return the shards of all of a worker's stages; the config goes with the first stage.

    Args:
        model: the worker's part.
        optimizer_state: tensors of one stage's optimizer by name, such as ``NAME.exp_avg``.
        agreed: what all workers have alike; kept beside the optimizer's tensors.

    Raises:
        NonFiniteError: a tensor is not finite.
    """
    shards: list[Shard] = []
    for stage, held in model.stages.items():
        parameters, state = model.state(stage), dict(optimizer_state(stage))
        _check_finite(parameters | state, stage)
        # Without this metadata transformers does not load the file.
        shards.append(Shard(f"stage-{stage:03d}.safetensors", "parameters", stage, parameters, {"format": "pt"}))
        shards.append(Shard(f"optimizer-{stage:03d}.safetensors", "optimizer", stage, state, _metadata(agreed)))
        if held.slice.is_first:
            shards.append(Shard("config.json", "model", stage, {}, {}, text=config_json(model)))
    return tuple(shards)


def _check_finite(tensors: Mapping[str, torch.Tensor], stage: int) -> None:
    """Refuse what only the last update can have spoilt, for before it the losses and gradients were finite."""
    for name, tensor in tensors.items():
        if not is_finite(tensor):
            raise NonFiniteError(
                f"{name} on stage {stage} is not finite after the last update, so no checkpoint is made of it; "
                "train with a lower train.learning_rate",
                stage=stage,
                microbatch=None,
            )


def config_json(model: LoadedModel) -> str:
    """Return the config.json with which the whole model loads as what it is."""
    values = json.loads(model.config.to_json_string())
    values.pop("_name_or_path", None)  # a path of this machine
    values["architectures"] = [type(model.model).__name__]
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def _metadata(agreed: Agreed) -> dict[str, str]:
    """Return the numbers as JSON, which keeps them exactly; a loss scale in fp16 only.

    In one entry: where there are several, a library may write them in an order of its own, with another digest.
    """
    values: dict[str, int | float] = {"updates_applied": agreed.updates_applied}
    if agreed.loss_scale is not None:
        values |= {"loss_scale": agreed.loss_scale, "clean_steps": agreed.clean_steps}
    return {"agreed": json.dumps(values)}
