"""DistilBERT: sequence classification. It knows no token types.

B rows, L positions, D hidden, C classes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from stage_worker.models.buffers import embedding_buffers
from stage_worker.models.family import Block, BlockCall, Family, Inputs
from stage_worker.models.masks import encoder_context
from stage_worker.models.objective import Objective


def _embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    out_BLD: torch.Tensor = model.distilbert.embeddings(inputs.batch.input_ids_BL)
    return out_BLD


def _layer(index: int) -> BlockCall:
    def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        out_BLD: torch.Tensor = model.distilbert.transformer.layer[index](h_BLD, inputs.context["mask"])
        return out_BLD

    return call


def _classify(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    assert h_BLD is not None
    pooled_BD = torch.relu(model.pre_classifier(h_BLD[:, 0]))
    logits_BC: torch.Tensor = model.classifier(model.dropout(pooled_BD))
    return logits_BC


def _blocks(config: DistilBertConfig) -> tuple[Block, ...]:
    names = [f"distilbert.transformer.layer.{index}" for index in range(config.n_layers)]
    layers = (Block(name, (name,), _layer(index)) for index, name in enumerate(names))
    return (
        Block("distilbert.embeddings", ("distilbert.embeddings",), _embed),
        *layers,
        Block("classifier", ("pre_classifier", "classifier"), _classify),
    )


def _buffers(config: DistilBertConfig) -> Mapping[str, torch.Tensor]:
    return embedding_buffers(config, "distilbert.embeddings", token_types=False)


def _build(config: DistilBertConfig) -> nn.Module:
    model: nn.Module = DistilBertForSequenceClassification(config)
    return model


CLASSIFICATION = Family(
    model_type="distilbert",
    objective=Objective.CLASSIFICATION,
    build=_build,
    base_prefix="distilbert",
    new_in_a_task=("pre_classifier", "classifier"),
    blocks=_blocks,
    context=encoder_context,
    buffers=_buffers,
    first_columns=frozenset({"input_ids"}),
    last_columns=frozenset({"labels"}),
)
