"""Llama: sequence classification.

B rows, L positions.
"""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForSequenceClassification
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from stage_worker.models.family import Context
from stage_worker.models.masks import causal_mask
from stage_worker.models.rotary_decoder import angles, rotary_classifier

_MASK = "mask"


def _context(config: LlamaConfig, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> Context:
    mask = causal_mask(config, attention_mask_BL, dtype)
    return {_MASK: mask, **angles(LlamaRotaryEmbedding(config), attention_mask_BL, dtype)}


def _mask_name(config: LlamaConfig, index: int) -> str:
    return _MASK


def _build(config: LlamaConfig) -> nn.Module:
    model: nn.Module = LlamaForSequenceClassification(config)
    return model


CLASSIFICATION = rotary_classifier(model_type="llama", build=_build, context=_context, mask_name=_mask_name)
