"""GPT-2: sequence classification, causal language model.

B rows, L positions, D hidden, C classes, V entries of the vocabulary.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

from stage_worker.models.family import Block, BlockCall, Context, Family, Inputs
from stage_worker.models.last_token import at_last_token
from stage_worker.models.masks import causal_mask
from stage_worker.models.objective import Objective

_NORM = "transformer.ln_f"


def _embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    ids_BL = inputs.batch.input_ids_BL
    assert ids_BL is not None
    positions_1L = torch.arange(ids_BL.shape[1], device=ids_BL.device).unsqueeze(0)
    body = model.transformer
    out_BLD: torch.Tensor = body.drop(body.wte(ids_BL) + body.wpe(positions_1L))
    return out_BLD


def _layer(index: int) -> BlockCall:
    def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        # By name: what comes second by place is a cache of keys and values.
        out_BLD: torch.Tensor = model.transformer.h[index](h_BLD, attention_mask=inputs.context["mask"])
        return out_BLD

    return call


def _classify(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    assert inputs.batch.input_ids_BL is not None
    # All positions are scored though one a row counts: a single row would be multiplied in another order.
    logits_BLC = model.score(model.transformer.ln_f(h_BLD))
    return at_last_token(logits_BLC, inputs.batch.input_ids_BL, pad_token_id=model.config.pad_token_id)


def _predict_tokens(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    logits_BLV: torch.Tensor = model.lm_head(model.transformer.ln_f(h_BLD))
    return logits_BLV


def _body(config: GPT2Config) -> Iterator[Block]:
    yield Block("transformer.embeddings", ("transformer.wte", "transformer.wpe"), _embed)
    for index in range(config.num_hidden_layers):
        name = f"transformer.h.{index}"
        yield Block(name, (name,), _layer(index))


def _classifier_blocks(config: GPT2Config) -> tuple[Block, ...]:
    return (*_body(config), Block("score", (_NORM, "score"), _classify))


def _causal_lm_blocks(config: GPT2Config) -> tuple[Block, ...]:
    return (*_body(config), Block("lm_head", (_NORM, "lm_head"), _predict_tokens))


def _context(config: GPT2Config, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> Context:
    return {"mask": causal_mask(config, attention_mask_BL, dtype)}


def _no_buffers(config: GPT2Config) -> Mapping[str, torch.Tensor]:
    return {}


def _build_classifier(config: GPT2Config) -> nn.Module:
    model: nn.Module = GPT2ForSequenceClassification(config)
    return model


def _build_causal_lm(config: GPT2Config) -> nn.Module:
    model: nn.Module = GPT2LMHeadModel(config)
    return model


CLASSIFICATION = Family(
    model_type="gpt2",
    objective=Objective.CLASSIFICATION,
    build=_build_classifier,
    base_prefix="transformer",
    new_in_a_task=("score",),
    blocks=_classifier_blocks,
    context=_context,
    buffers=_no_buffers,
    first_columns=frozenset({"input_ids"}),
    last_columns=frozenset({"input_ids", "labels"}),
)
CAUSAL_LM = Family(
    model_type="gpt2",
    objective=Objective.CAUSAL_LM,
    build=_build_causal_lm,
    base_prefix="transformer",
    new_in_a_task=("lm_head",),
    blocks=_causal_lm_blocks,
    context=_context,
    buffers=_no_buffers,
    first_columns=frozenset({"input_ids"}),
    last_columns=frozenset({"labels"}),
)
