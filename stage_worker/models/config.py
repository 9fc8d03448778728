"""The Hugging Face config of a job's model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig
from transformers.activations import ACT2FN

from stage_worker.models.families import UnsupportedModelError, check_supported
from stage_worker.models.objective import Objective

_SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size"),
)
_PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
_RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(_SIZES, (1, 2**31 - 1)),
    **dict.fromkeys(_PROBABILITIES, (0.0, 1.0)),
    **dict.fromkeys(("layer_norm_eps", "initializer_range"), (0.0, 1.0)),
}
"""Least and greatest value of the numbers of a config, which transformers checks for their type only."""
_ALIASES = ("num_labels", "torch_dtype")
"""Keys that transformers takes beside those that it stores."""
_OBSOLETE: Mapping[str, object] = {"gradient_checkpointing": False, "position_embedding_type": "absolute"}
"""Keys that transformers has given up but old files still hold, each with the one value that is still true."""


class ModelConfigError(ValueError):
    """A model section that no model can be made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNeeds:
    """What the data asks of a model."""

    labels: Sequence[str]
    """Names in the order of their ids; empty for a regression task and for a token-level objective."""
    num_labels: int
    """Outputs of a classification head; 0 for a token-level objective."""
    pad_token_id: int
    vocabulary_size: int


def pretrained_config(folder: Path, objective: Objective = Objective.CLASSIFICATION) -> Any:
    """Return the config of a local model folder.

    Raises:
        ModelConfigError: the folder has no config that transformers knows.
        UnsupportedModelError: no family describes its type, or Takt cannot train this variant.
    """
    if not (folder / "config.json").is_file():
        raise ModelConfigError(f"model.pretrained: {folder} has no config.json")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the library validates with types of its own
        raise ModelConfigError(f"model.pretrained: the config of {folder} cannot be read: {error}") from error
    check_supported(config.model_type, objective)
    _check(config, "model.pretrained")
    return config


def new_config(values: Mapping[str, Any], needs: TaskNeeds, objective: Objective = Objective.CLASSIFICATION) -> Any:
    """Return the config of a model from scratch; vocabulary and pad id are the data's where ``values`` names none.

    Raises:
        ModelConfigError: transformers refuses the values, or does not know a key.
        UnsupportedModelError: no family describes its type, or Takt cannot train this variant.
    """
    given = dict(values)
    model_type = given.pop("model_type", None)
    if not isinstance(model_type, str):
        raise ModelConfigError("model.config has no model_type, for instance bert")
    check_supported(model_type, objective)
    _check_keys(model_type, given)
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
    elif needs.num_labels:
        config.num_labels = needs.num_labels
    config._attn_implementation = attention
    config.dtype = torch.float32


def _check_keys(model_type: str, given: Mapping[str, Any]) -> None:
    """Refuse keys that transformers would keep and never read, most of them slips."""
    known = sorted({*CONFIG_MAPPING[model_type]().to_dict(), *_ALIASES})
    for key, value in given.items():
        if key in _OBSOLETE:
            if value != _OBSOLETE[key]:
                raise ModelConfigError(f"model.config.{key} is {value!r}, which transformers does not build any more")
        elif key not in known:
            nearest = get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise ModelConfigError(f"model.config.{key} is no key of a {model_type} config; the nearest is {nearest}")


def _check(config: Any, key: str) -> None:
    """Refuse now what the modelling code, which takes seconds to import, would refuse on a worker."""
    for name, (least, greatest) in _RANGES.items():
        value = getattr(config, name, None)
        if value is not None and not least <= value <= greatest:
            raise ModelConfigError(f"{key}: {name} is {value}, need a number from {least:g} to {greatest:g}")
    if isinstance(config.hidden_act, str) and config.hidden_act not in ACT2FN:
        raise ModelConfigError(f"{key}: hidden_act is {config.hidden_act!r}, need one of {', '.join(sorted(ACT2FN))}")
    if config.pad_token_id is not None and not 0 <= config.pad_token_id < config.vocab_size:
        raise ModelConfigError(
            f"{key}: pad_token_id is {config.pad_token_id}, need an id of the vocabulary, "
            f"which has {config.vocab_size} entries"
        )
    if config.hidden_size % config.num_attention_heads:
        raise ModelConfigError(
            f"{key}: hidden_size is {config.hidden_size}, need a multiple of "
            f"num_attention_heads, which is {config.num_attention_heads}"
        )
    if getattr(config, "is_decoder", False):
        raise UnsupportedModelError(f"{key}: is_decoder is true; a {config.model_type} is trained as an encoder only")
