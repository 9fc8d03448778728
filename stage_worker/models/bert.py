"""BERT: sequence classification, masked language model.

B rows, L positions, D hidden, C classes, V entries of the vocabulary.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from stage_worker.models.buffers import embedding_buffers
from stage_worker.models.family import Block, BlockCall, Family, Inputs
from stage_worker.models.masks import encoder_context
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


def _predict_tokens(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    logits_BLV: torch.Tensor = model.cls(h_BLD)
    return logits_BLV


def _body(config: BertConfig) -> Iterator[Block]:
    yield Block("bert.embeddings", ("bert.embeddings",), _embed)
    for index in range(config.num_hidden_layers):
        name = f"bert.encoder.layer.{index}"
        yield Block(name, (name,), _layer(index))


def _classifier_blocks(config: BertConfig) -> tuple[Block, ...]:
    return (*_body(config), Block("classifier", ("bert.pooler", "classifier"), _classify))


def _masked_lm_blocks(config: BertConfig) -> tuple[Block, ...]:
    return (*_body(config), Block("cls", ("cls",), _predict_tokens))


def _buffers(config: BertConfig) -> Mapping[str, torch.Tensor]:
    return embedding_buffers(config, "bert.embeddings")


def _build_classifier(config: BertConfig) -> nn.Module:
    model: nn.Module = BertForSequenceClassification(config)
    return model


def _build_masked_lm(config: BertConfig) -> nn.Module:
    model: nn.Module = BertForMaskedLM(config)
    return model


CLASSIFICATION = Family(
    model_type="bert",
    objective=Objective.CLASSIFICATION,
    build=_build_classifier,
    base_prefix="bert",
    new_in_a_task=("bert.pooler", "classifier"),
    blocks=_classifier_blocks,
    context=encoder_context,
    buffers=_buffers,
    first_columns=frozenset({"input_ids", "token_type_ids"}),
    last_columns=frozenset({"labels"}),
)
MASKED_LM = Family(
    model_type="bert",
    objective=Objective.MASKED_LM,
    build=_build_masked_lm,
    base_prefix="bert",
    new_in_a_task=("cls",),
    blocks=_masked_lm_blocks,
    context=encoder_context,
    buffers=_buffers,
    first_columns=frozenset({"input_ids", "token_type_ids"}),
    last_columns=frozenset({"labels"}),
)
