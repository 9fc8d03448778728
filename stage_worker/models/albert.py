"""ALBERT: sequence classification. Its layers share the parameters of one group, or of a few.

B rows, L positions, D hidden, C classes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import AlbertConfig, AlbertForSequenceClassification

from stage_worker.models.buffers import embedding_buffers
from stage_worker.models.family import Block, BlockCall, Family, Inputs
from stage_worker.models.masks import encoder_context
from stage_worker.models.objective import Objective

_WIDEN = "albert.encoder.embedding_hidden_mapping_in"


def _embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    batch = inputs.batch
    narrow = model.albert.embeddings(input_ids=batch.input_ids_BL, token_type_ids=batch.token_type_ids_BL)
    out_BLD: torch.Tensor = model.albert.encoder.embedding_hidden_mapping_in(narrow)
    return out_BLD


def _layer(group: int) -> BlockCall:
    def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        out_BLD: torch.Tensor = model.albert.encoder.albert_layer_groups[group](h_BLD, inputs.context["mask"])
        return out_BLD

    return call


def _classify(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    assert h_BLD is not None
    pooled_BD = model.albert.pooler_activation(model.albert.pooler(h_BLD[:, 0]))
    logits_BC: torch.Tensor = model.classifier(model.dropout(pooled_BD))
    return logits_BC


def _blocks(config: AlbertConfig) -> tuple[Block, ...]:
    layers_per_group = config.num_hidden_layers / config.num_hidden_groups
    groups = [int(index / layers_per_group) for index in range(config.num_hidden_layers)]
    layers = (
        Block(f"albert.encoder.layer.{index}", (f"albert.encoder.albert_layer_groups.{group}",), _layer(group))
        for index, group in enumerate(groups)
    )
    return (
        Block("albert.embeddings", ("albert.embeddings", _WIDEN), _embed),
        *layers,
        Block("classifier", ("albert.pooler", "classifier"), _classify),
    )


def _buffers(config: AlbertConfig) -> Mapping[str, torch.Tensor]:
    return embedding_buffers(config, "albert.embeddings")


def _build(config: AlbertConfig) -> nn.Module:
    model: nn.Module = AlbertForSequenceClassification(config)
    return model


CLASSIFICATION = Family(
    model_type="albert",
    objective=Objective.CLASSIFICATION,
    build=_build,
    base_prefix="albert",
    new_in_a_task=("albert.pooler", "classifier"),
    blocks=_blocks,
    context=encoder_context,
    buffers=_buffers,
    first_columns=frozenset({"input_ids", "token_type_ids"}),
    last_columns=frozenset({"labels"}),
)
