"""BERT: sequence classification, masked language model.

B rows, L positions, D hidden, C classes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from stage_worker.models.family import Block, BlockCall, Context, Family, Inputs
from stage_worker.models.masks import bidirectional_mask
from stage_worker.models.objective import Objective


def _embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    batch = inputs.batch
    out_BLD: torch.Tensor = model.bert.embeddings(input_ids=batch.input_ids_BL, token_type_ids=batch.token_type_ids_BL)
    return out_BLD


def _layer(index: int) -> BlockCall:
    def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        out_BLD: torch.Tensor = model.bert.encoder.layer[index](h_BLD, inputs.context["mask"])
        return out_BLD

    return call


def _classify(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    logits_BC: torch.Tensor = model.classifier(model.dropout(model.bert.pooler(h_BLD)))
    return logits_BC


def _blocks(config: BertConfig) -> tuple[Block, ...]:
    names = [f"bert.encoder.layer.{index}" for index in range(config.num_hidden_layers)]
    layers = (Block(name, (name,), _layer(index)) for index, name in enumerate(names))
    return (
        Block("bert.embeddings", ("bert.embeddings",), _embed),
        *layers,
        Block("classifier", ("bert.pooler", "classifier"), _classify),
    )


def _context(config: BertConfig, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> Context:
    return {"mask": bidirectional_mask(config, attention_mask_BL, dtype)}


def _buffers(config: BertConfig) -> Mapping[str, torch.Tensor]:
    positions = torch.arange(config.max_position_embeddings).expand((1, -1))
    return {
        "bert.embeddings.position_ids": positions,
        "bert.embeddings.token_type_ids": torch.zeros(positions.shape, dtype=torch.long),
    }


def _build(config: BertConfig) -> nn.Module:
    model: nn.Module = BertForSequenceClassification(config)
    return model


CLASSIFICATION = Family(
    model_type="bert",
    objective=Objective.CLASSIFICATION,
    build=_build,
    base_prefix="bert",
    new_in_a_task=("bert.pooler", "classifier"),
    blocks=_blocks,
    context=_context,
    buffers=_buffers,
    first_columns=frozenset({"input_ids", "token_type_ids"}),
    last_columns=frozenset({"labels"}),
)
