"""A model of next to no size for every family and objective. A new family is one more entry in ``MODELS``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)

from tests.unit.tiny_models import VALUES

AUTO: Mapping[str, Any] = {
    "classification": AutoModelForSequenceClassification,
    "masked_lm": AutoModelForMaskedLM,
    "causal_lm": AutoModelForCausalLM,
}
"""The library's own models by objective."""


@dataclass(frozen=True, slots=True)
class TinyModel:
    """Four layers of hidden size 16, 50 words, rows of up to 32 tokens; no dropout."""

    model_type: str
    objective: str = "classification"
    changes: tuple[tuple[str, Any], ...] = ()
    """Values of the config beside those of the family."""

    def config(self, *, num_layers: int = 4, dropout: float = 0.0) -> dict[str, Any]:
        """Return the values of the config."""
        values = {"model_type": self.model_type, **VALUES[self.model_type], **dict(self.changes)}
        values |= {"vocab_size": 50, "pad_token_id": 0}
        (layers,) = {"num_hidden_layers", "n_layers", "n_layer"} & values.keys()
        values[layers] = num_layers
        return values | dict.fromkeys(_dropouts(values), dropout)


def _dropouts(values: Mapping[str, Any]) -> list[str]:
    """Return the keys of the chances of dropout that a config names."""
    return [key for key in values if "dropout" in key or key.endswith("_pdrop")]


MODELS: Mapping[str, TinyModel] = {
    "bert": TinyModel("bert"),
    "albert": TinyModel("albert"),
    "albert-2-groups": TinyModel("albert", changes=(("num_hidden_groups", 2),)),
    # Real ones have one type of token; positions count from the pad id on.
    "roberta": TinyModel("roberta", changes=(("type_vocab_size", 1), ("max_position_embeddings", 40))),
    "distilbert": TinyModel("distilbert"),
    "electra": TinyModel("electra"),
    "gpt2": TinyModel("gpt2"),
    "llama": TinyModel("llama", changes=(("attention_dropout", 0.0),)),
    "qwen2": TinyModel("qwen2", changes=(("attention_dropout", 0.0),)),
    "bert-masked_lm": TinyModel("bert", "masked_lm"),
    "gpt2-causal_lm": TinyModel("gpt2", "causal_lm"),
}
"""By name; ``bert`` is the one that most tests take."""

TINY: dict[str, Any] = MODELS["bert"].config()
"""Values of the config of a tiny BERT."""


def save_tiny_model(folder: Path, config: Mapping[str, Any] = TINY, *, objective: str = "classification") -> None:
    """Write a small model whose every parameter is random, biases and norms too, so that no two can be mistaken."""
    torch.manual_seed(20)
    values = {key: value for key, value in config.items() if key != "model_type"}
    model = AUTO[objective].from_config(AutoConfig.for_model(config["model_type"], **values))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
