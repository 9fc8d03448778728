"""BERT for sequence classification.

B rows, L positions, D hidden, C classes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification
from transformers.masking_utils import create_bidirectional_mask

from stage_worker.models.family import Block, BlockCall, Family, Inputs


def _embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    batch = inputs.batch
    out_BLD: torch.Tensor = model.bert.embeddings(input_ids=batch.input_ids_BL, token_type_ids=batch.token_type_ids_BL)
    return out_BLD


def _layer(index: int) -> BlockCall:
    def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        out_BLD: torch.Tensor = model.bert.encoder.layer[index](h_BLD, inputs.mask)
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


def _mask(config: BertConfig, attention_mask_BL: torch.Tensor) -> torch.Tensor | None:
    # The mask depends on rows, width and type of the hidden state only, so an empty one does.
    empty = torch.empty(*attention_mask_BL.shape, 0, dtype=torch.float32)
    mask: torch.Tensor | None = create_bidirectional_mask(
        config=config, inputs_embeds=empty, attention_mask=attention_mask_BL
    )
    return mask


def _buffers(config: BertConfig) -> Mapping[str, torch.Tensor]:
    positions = torch.arange(config.max_position_embeddings).expand((1, -1))
    return {
        "bert.embeddings.position_ids": positions,
        "bert.embeddings.token_type_ids": torch.zeros(positions.shape, dtype=torch.long),
    }


def _build(config: BertConfig) -> nn.Module:
    model: nn.Module = BertForSequenceClassification(config)
    return model


BERT = Family(
    model_type="bert",
    build=_build,
    base_prefix="bert",
    new_in_a_task=("bert.pooler", "classifier"),
    blocks=_blocks,
    mask=_mask,
    buffers=_buffers,
    first_columns=frozenset({"input_ids", "token_type_ids"}),
    last_columns=frozenset({"labels"}),
)
