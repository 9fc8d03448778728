"""Qwen2: sequence classification; some of its layers may look back a window of positions only.

B rows, L positions.
"""

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForSequenceClassification
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

from stage_worker.models.family import Context
from stage_worker.models.masks import causal_mask, sliding_causal_mask
from stage_worker.models.rotary_decoder import angles, rotary_classifier

_MASKS = {"full_attention": causal_mask, "sliding_attention": sliding_causal_mask}
"""By what the config calls a kind of layer; masks have the same names in the context."""


def _context(config: Qwen2Config, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> Context:
    masks = {
        kind: make(config, attention_mask_BL, dtype) for kind, make in _MASKS.items() if kind in config.layer_types
    }
    return {**masks, **angles(Qwen2RotaryEmbedding(config), attention_mask_BL, dtype)}


def _mask_name(config: Qwen2Config, index: int) -> str:
    kind: str = config.layer_types[index]
    return kind


def _build(config: Qwen2Config) -> nn.Module:
    model: nn.Module = Qwen2ForSequenceClassification(config)
    return model


CLASSIFICATION = rotary_classifier(model_type="qwen2", build=_build, context=_context, mask_name=_mask_name)
