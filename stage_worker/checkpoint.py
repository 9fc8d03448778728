"""A worker's share of a checkpoint: shards by stage, each written whole or not at all.

The coordinator's manifest, which makes a checkpoint of them, comes last and elsewhere.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save

from stage_worker.engine.agreed import Agreed
from stage_worker.engine.failure import NonFiniteError
from stage_worker.models.finite import is_finite
from stage_worker.models.loaded import LoadedModel


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """One file of a checkpoint."""

    file: str
    """Name in the checkpoint's folder."""
    kind: str
    """parameters, optimizer, or model for its config.json."""
    stage: int
    sha256: str
    num_bytes: int


def write_shards(
    folder: Path,
    model: LoadedModel,
    *,
    optimizer_state: Callable[[int], Mapping[str, torch.Tensor]],
    agreed: Agreed,
) -> tuple[WrittenShard, ...]:
    """Write the shards of all of a worker's stages; the config goes with the first stage.

    Args:
        folder: of the checkpoint; made where it is missing.
        model: the worker's part.
        optimizer_state: tensors of one stage's optimizer by name, such as ``NAME.exp_avg``.
        agreed: what all workers have alike; kept beside the optimizer's tensors.

    Raises:
        NonFiniteError: a tensor is not finite; nothing is written.
        OSError: a file cannot be written.
    """
    for stage in model.stages:
        _check_finite(model.state(stage) | dict(optimizer_state(stage)), stage)
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[WrittenShard] = []
    for stage, held in model.stages.items():
        content = _serialise(model.state(stage), {"format": "pt"})  # without it transformers does not load the file
        shards.append(_write(folder / f"stage-{stage:03d}.safetensors", content, kind="parameters", stage=stage))
        content = _serialise(optimizer_state(stage), _metadata(agreed))
        shards.append(_write(folder / f"optimizer-{stage:03d}.safetensors", content, kind="optimizer", stage=stage))
        if held.slice.is_first:
            shards.append(_write(folder / "config.json", config_json(model).encode(), kind="model", stage=stage))
    _sync_folder(folder)
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

    In one entry: the library writes several in an order that changes from file to file, and so would the digest.
    """
    values: dict[str, int | float] = {"updates_applied": agreed.updates_applied}
    if agreed.loss_scale is not None:
        values |= {"loss_scale": agreed.loss_scale, "clean_steps": agreed.clean_steps}
    return {"agreed": json.dumps(values)}


def _serialise(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> bytes:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content: bytes = save(whole, metadata=dict(metadata))
    return content


def _write(path: Path, content: bytes, *, kind: str, stage: int) -> WrittenShard:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return WrittenShard(path.name, kind, stage, hashlib.sha256(content).hexdigest(), len(content))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # else the renames may be lost with the power
    finally:
        os.close(descriptor)
