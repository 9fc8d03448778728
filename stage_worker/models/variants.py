"""Which configs of a family a model can be made of and trained by; the rest is refused by its key.

The library checks little more than types, and the modelling code, which takes seconds to import,
would refuse the rest on a worker only, or compute something else in silence.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from transformers.activations import ACT2FN

from stage_worker.models.families import FAMILIES

_SIZES = (
    *("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size", "hidden_dim", "n_inner", "embedding_size"),
    *("num_hidden_groups", "inner_group_num", "num_key_value_heads", "head_dim", "sliding_window"),
)
_RATES = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob"),
    *("dropout", "attention_dropout", "seq_classif_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"),
    *("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "initializer_range"),
)
_RANGES: Mapping[str, tuple[int, int]] = {
    "num_hidden_layers": (1, 2**16),  # the library makes lists of so many
    **dict.fromkeys(_SIZES, (1, 2**31 - 1)),
    **dict.fromkeys(_RATES, (0, 1)),
}
"""Least and greatest value of the numbers of a config, by the names that all families know them under."""
_GIVEN_RANGES: Mapping[str, tuple[int, int]] = {**_RANGES, "num_labels": (1, 2**31 - 1)}
"""The same of what a job file may give."""
_MAY_BE_NULL = ("n_inner", "num_key_value_heads", "head_dim", "sliding_window", "classifier_dropout")
"""Numbers that others stand for where they are null."""
_ACTIVATIONS = ("hidden_act", "activation", "activation_function")
_PLAIN = tuple(sorted(name for name in ACT2FN if name not in ("prelu", "xielu")))
"""Activations without parameters, which the library would leave as they happen to be in memory."""
_FIXED: Mapping[str, tuple[object, str]] = {
    "is_decoder": (False, "it would look only back, as no family of encoders is trained here"),
    "add_cross_attention": (False, "there is no encoder beside it"),
    "chunk_size_feed_forward": (0, "only widths that it divides could be computed"),
    "position_embedding_type": ("absolute", "transformers does not build any other"),
    "pretraining_tp": (1, "transformers does not build any other"),
}
"""Keys of which Takt can train one value only, with the reason."""
_LAYER_TYPES = ("full_attention", "sliding_attention")
"""What the layers of a decoder may look back on."""
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary angles that depend on the position alone; those of other types depend on the rows beside it as well."""
_ROPE_NUMBERS = ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_ROPE_CHOICES = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
"""Further numbers of rotary angles, which the library chooses where they are null."""


def given_problems(given: Mapping[str, Any], *, key: str, attribute_map: Mapping[str, str]) -> Iterator[str]:
    """Yield what no config can hold among the values of a job file.

    The library computes with some of them before it looks, and never looks at those by another family's name.

    Args:
        given: by name.
        key: its place in the job file.
        attribute_map: the family's own names by those that all families know.
    """
    names = {own: name for name, own in attribute_map.items()}
    for own, value in given.items():
        name = names.get(own, own)
        if name in _GIVEN_RANGES and not _is_number(name, value):
            yield f"{key}: {own} is {json.dumps(value)}, need {_needed(name)}"
    labels = given.get("id2label")
    if labels is not None and not (isinstance(labels, dict) and all(index.isdecimal() for index in labels)):
        yield f"{key}: id2label is {json.dumps(labels)}, need a mapping of ids, from 0, to names"


def problems(config: Any, *, key: str) -> Iterator[str]:
    """Yield what makes a config one that no model can be made of; ``key`` is its place in the job file."""
    yield from _number_problems(config, key)
    yield from _activation_problems(config, key)
    pad, vocabulary = config.pad_token_id, config.vocab_size
    if pad is not None and not 0 <= pad < vocabulary:
        yield f"{key}: pad_token_id is {pad}, need an id of the vocabulary, which has {vocabulary} entries"
    yield from _ratio_problems(config, key)
    yield from _position_problems(config, key)


def unsupported(config: Any, *, key: str) -> Iterator[str]:
    """Yield what the library could build and Takt cannot train."""
    for name, (only, reason) in _FIXED.items():
        value = getattr(config, name, only)
        if value != only:
            yield f"{key}: {name} is {json.dumps(value)}, need {json.dumps(only)}: {reason}"
    rope = getattr(config, "rope_parameters", None)
    if rope is not None and rope.get("rope_type") not in _ROPE_TYPES:
        yield f"{key}: rope_parameters.rope_type is {rope.get('rope_type')!r}, need one of {', '.join(_ROPE_TYPES)}"
    if rope is not None and rope.get("partial_rotary_factor", 1) != 1:
        part = json.dumps(rope["partial_rotary_factor"])
        yield f"{key}: rope_parameters.partial_rotary_factor is {part}, need 1: these families turn all of a head"
    for kind in sorted({*(getattr(config, "layer_types", None) or ())} - {*_LAYER_TYPES}):
        yield f"{key}: layer_types has {kind!r}, need one of {', '.join(_LAYER_TYPES)}"
    if FAMILIES[config.model_type].positions_follow_pad:
        if config.pad_token_id is None:
            yield f"{key}: pad_token_id is null; a {config.model_type} counts positions from it"
        elif most_positions(config) < 1:
            yield (
                f"{key}: max_position_embeddings is {config.max_position_embeddings}, of which a {config.model_type} "
                f"uses those behind the pad id, {config.pad_token_id}; need at least {config.pad_token_id + 2}"
            )


def most_positions(config: Any) -> int:
    """Return the length of the longest row that a model of ``config`` takes."""
    most: int = config.max_position_embeddings
    return most - config.pad_token_id - 1 if FAMILIES[config.model_type].positions_follow_pad else most


def own_key(config: Any, name: str) -> str:
    """Return what the family itself calls a number of its config, such as ``n_layers``."""
    own: str = config.attribute_map.get(name, name)
    return own


def _number_problems(config: Any, key: str) -> Iterator[str]:
    for name in _RANGES:
        if hasattr(config, name) and not _is_number(name, value := getattr(config, name)):
            yield f"{key}: {own_key(config, name)} is {json.dumps(value)}, need {_needed(name)}"


def _is_number(name: str, value: Any) -> bool:
    if value is None:
        return name in _MAY_BE_NULL
    least, greatest = _GIVEN_RANGES[name]
    is_right = isinstance(value, int | float if name in _RATES else int) and not isinstance(value, bool)
    return is_right and least <= value <= greatest


def _needed(name: str) -> str:
    least, greatest = _GIVEN_RANGES[name]
    return f"a {'' if name in _RATES else 'whole '}number from {least} to {greatest}"


def _activation_problems(config: Any, key: str) -> Iterator[str]:
    for name in _ACTIVATIONS:
        value = getattr(config, name, None)
        if value is not None and value not in _PLAIN:
            yield f"{key}: {name} is {value!r}, need one of {', '.join(_PLAIN)}"


def _ratio_problems(config: Any, key: str) -> Iterator[str]:
    def uneven(name: str, divisor: str) -> Iterator[str]:
        whole, part = getattr(config, name), getattr(config, divisor)
        if whole % part:
            yield (
                f"{key}: {own_key(config, name)} is {whole}, need a multiple of {own_key(config, divisor)}, "
                f"which is {part}"
            )

    yield from uneven("hidden_size", "num_attention_heads")
    if getattr(config, "num_key_value_heads", None) is not None:
        yield from uneven("num_attention_heads", "num_key_value_heads")
    groups = getattr(config, "num_hidden_groups", 1)
    if groups > config.num_hidden_layers:
        yield (
            f"{key}: num_hidden_groups is {groups}, need at most num_hidden_layers, which is "
            f"{config.num_hidden_layers}: each group is used"
        )


def _position_problems(config: Any, key: str) -> Iterator[str]:
    rope = getattr(config, "rope_parameters", None)
    if rope is not None:
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        if width % 2:
            yield f"{key}: an attention head is {width} wide, need an even number: rotary positions turn pairs"
        yield from _rope_problems(rope, f"{key}: rope_parameters")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()) and config.sliding_window is None:
        yield f"{key}: layer_types has 'sliding_attention' but no sliding_window is used"


def _rope_problems(rope: Mapping[str, Any], key: str) -> Iterator[str]:
    for name in (*_ROPE_NUMBERS, *_ROPE_CHOICES):
        value = rope.get(name)
        if name not in rope or (value is None and name in _ROPE_CHOICES):
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            yield f"{key}.{name} is {json.dumps(value)}, need a number above 0"
