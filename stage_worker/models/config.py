"""The Hugging Face config of a job's model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from stage_worker.models.families import FAMILIES, UnsupportedModelError, check_supported
from stage_worker.models.objective import Objective
from stage_worker.models.variants import given_problems, problems, unsupported

_ALIASES = ("num_labels", "torch_dtype")
"""Keys that transformers takes beside those that it stores."""
_ROTARY_ALIASES = ("rope_theta", "rope_scaling")
"""The same of families with rotary positions."""
_OBSOLETE: Mapping[str, object] = {"gradient_checkpointing": False, "position_embedding_type": "absolute"}
"""Keys that transformers has given up but old files still hold, each with the one value that is still true."""

HIGHEST_UNNAMED_PAD = 1
"""Pad id, the greatest of common tokenizers for encoders, by which positions are promised before the data are known."""


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
    if not isinstance(_json_of(folder / "config.json"), dict):
        raise ModelConfigError(f"model.pretrained: {folder / 'config.json'} is no mapping of names to values")
    try:
        stored, _ = PreTrainedConfig.get_config_dict(folder, local_files_only=True)
        model_type = stored.get("model_type")
        if isinstance(model_type, str):  # the library would judge its values first, or advise to upgrade
            check_supported(model_type, objective)
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except UnsupportedModelError:
        raise
    except Exception as error:  # the library validates with types of its own
        raise ModelConfigError(f"model.pretrained: the config of {folder} cannot be read: {error}") from error
    check_supported(config.model_type, objective)  # where the folder names no type, the library guesses one
    _check(config, "model.pretrained")
    return config


def _json_of(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelConfigError(f"model.pretrained: {path} cannot be read: {error}") from error


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
    if "pad_token_id" not in given:
        given["pad_token_id"] = needs.pad_token_id
        if FAMILIES[model_type].positions_follow_pad and needs.pad_token_id > HIGHEST_UNNAMED_PAD:
            raise ModelConfigError(
                f"model.config names no pad_token_id, from which a {model_type} counts its positions; "
                f"set it to {needs.pad_token_id}, that of the data"
            )
    _leave_out_foreign_ids(model_type, given)
    try:
        config = AutoConfig.for_model(model_type, **given)
    except Exception as error:  # the library validates with types of its own
        raise ModelConfigError(f"model.config is refused by transformers: {error}") from error
    _check(config, "model.config")
    return config


def fit_to_task(config: Any, needs: TaskNeeds, *, attention: str) -> None:
    """Set the head, the pad id, the attention implementation and the stored type of ``config``.

    Args:
        config: changed in place.
        needs: of the data.
        attention: sdpa or eager.

    Raises:
        ModelConfigError: the model counts positions from a pad id that is not the data's.
    """
    if FAMILIES[config.model_type].positions_follow_pad and config.pad_token_id != needs.pad_token_id:
        raise ModelConfigError(
            f"the pad_token_id of the model is {config.pad_token_id}, that of data.tokenizer is {needs.pad_token_id}; "
            f"a {config.model_type} counts positions from it, so they need to be the same"
        )
    config.pad_token_id = needs.pad_token_id
    if needs.labels:
        config.id2label = dict(enumerate(needs.labels))
        config.label2id = {label: index for index, label in enumerate(needs.labels)}
        config.problem_type = "single_label_classification"
    elif needs.num_labels:
        config.num_labels = needs.num_labels
        config.problem_type = "regression"
    config._attn_implementation = attention
    config.dtype = torch.float32


def _check_keys(model_type: str, given: Mapping[str, Any]) -> None:
    """Refuse keys that transformers would keep and never read, most of them slips, and values of no use."""
    default = CONFIG_MAPPING[model_type]()
    stored = default.to_dict()
    rotary = _ROTARY_ALIASES if "rope_parameters" in stored else ()
    known = sorted({*stored, *default.attribute_map, *_ALIASES, *rotary})
    for key, value in given.items():
        if key in _OBSOLETE:
            if value != _OBSOLETE[key]:
                raise ModelConfigError(f"model.config.{key} is {value!r}, which transformers does not build any more")
        elif key not in known:
            nearest = get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise ModelConfigError(f"model.config.{key} is no key of a {model_type} config; the nearest is {nearest}")
    for name, own in default.attribute_map.items():
        if name in given and own in given:
            raise ModelConfigError(f"model.config has both {name} and {own}, which are one; leave one out")
    for problem in given_problems(given, key="model.config", attribute_map=default.attribute_map):
        raise ModelConfigError(problem)


def _leave_out_foreign_ids(model_type: str, given: dict[str, Any]) -> None:
    """Name no begin or end token where nobody asked for one and the family's own lies outside the vocabulary."""
    default = CONFIG_MAPPING[model_type]()
    for key in ("bos_token_id", "eos_token_id"):
        own = getattr(default, key)
        if isinstance(own, int) and isinstance(given["vocab_size"], int) and own >= given["vocab_size"]:
            given.setdefault(key, None)


def _check(config: Any, key: str) -> None:
    for problem in problems(config, key=key):
        raise ModelConfigError(problem)
    for problem in unsupported(config, key=key):
        raise UnsupportedModelError(problem)
