"""The Hugging Face config of a job's model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from stage_worker.models.families import UnsupportedModelError, check_supported


class ModelConfigError(ValueError):
    """A model section that no model can be made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNeeds:
    """What the data asks of a model."""

    labels: Sequence[str]
    """Names in the order of their ids; empty for a regression task."""
    num_labels: int
    pad_token_id: int
    vocabulary_size: int


def pretrained_config(folder: Path) -> Any:
    """Return the config of a local model folder.

    Raises:
        ModelConfigError: the folder has no config that transformers knows.
        UnsupportedModelError: no family describes its type, or Takt cannot train this variant.
    """
    if not (folder / "config.json").is_file():
        raise ModelConfigError(f"model.pretrained: {folder} has no config.json")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelConfigError(f"model.pretrained: the config of {folder} cannot be read: {error}") from error
    check_supported(config.model_type)
    _check(config, "model.pretrained")
    return config


def new_config(values: Mapping[str, Any], needs: TaskNeeds) -> Any:
    """Return the config of a model from scratch; vocabulary and pad id are the data's where ``values`` names none.

    Raises:
        ModelConfigError: transformers refuses the values.
        UnsupportedModelError: no family describes its type, or Takt cannot train this variant.
    """
    given = dict(values)
    model_type = given.pop("model_type", None)
    if not isinstance(model_type, str):
        raise ModelConfigError("model.config has no model_type, for instance bert")
    check_supported(model_type)
    given.setdefault("vocab_size", needs.vocabulary_size)
    given.setdefault("pad_token_id", needs.pad_token_id)
    try:
        config = AutoConfig.for_model(model_type, **given)
    except Exception as error:  # the library validates with types of its own
        raise ModelConfigError(f"model.config is refused by transformers: {error}") from error
    _check(config, "model.config")
    return config


def fit_to_task(config: Any, needs: TaskNeeds, *, attention: str) -> None:
    """Set the head, the attention implementation and the stored type of ``config``.

    Args:
        config: changed in place.
        needs: of the data.
        attention: sdpa or eager.
    """
    if needs.labels:
        config.id2label = dict(enumerate(needs.labels))
        config.label2id = {label: index for index, label in enumerate(needs.labels)}
    else:
        config.num_labels = needs.num_labels
    config._attn_implementation = attention
    config.dtype = torch.float32


def _check(config: Any, key: str) -> None:
    """Refuse now what the modelling code, which takes seconds to import, would refuse on a worker."""
    if config.hidden_size % config.num_attention_heads:
        raise ModelConfigError(
            f"{key}: hidden_size is {config.hidden_size}, need a multiple of "
            f"num_attention_heads, which is {config.num_attention_heads}"
        )
    if getattr(config, "is_decoder", False):
        raise UnsupportedModelError(f"{key}: is_decoder is true; a {config.model_type} is trained as an encoder only")
