"""ELECTRA: sequence classification, from a discriminator or a generator.

B rows, L positions, D hidden, C classes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import ElectraConfig, ElectraForSequenceClassification

from stage_worker.models.buffers import embedding_buffers
from stage_worker.models.family import Block, BlockCall, Family, Inputs
from stage_worker.models.masks import encoder_context
from stage_worker.models.objective import Objective

_WIDEN = "electra.embeddings_project"


def _widens(config: ElectraConfig) -> bool:
    return bool(config.embedding_size != config.hidden_size)


def _embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    batch = inputs.batch
    out_BLD: torch.Tensor = model.electra.embeddings(
        input_ids=batch.input_ids_BL, token_type_ids=batch.token_type_ids_BL
    )
    if _widens(model.config):
        out_BLD = model.electra.embeddings_project(out_BLD)
    return out_BLD


def _layer(index: int) -> BlockCall:
    def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        out_BLD: torch.Tensor = model.electra.encoder.layer[index](h_BLD, inputs.context["mask"])
        return out_BLD

    return call


def _classify(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    logits_BC: torch.Tensor = model.classifier(h_BLD)
    return logits_BC


def _blocks(config: ElectraConfig) -> tuple[Block, ...]:
    names = [f"electra.encoder.layer.{index}" for index in range(config.num_hidden_layers)]
    layers = (Block(name, (name,), _layer(index)) for index, name in enumerate(names))
    return (
        Block("electra.embeddings", ("electra.embeddings", *((_WIDEN,) if _widens(config) else ())), _embed),
        *layers,
        Block("classifier", ("classifier",), _classify),
    )


def _buffers(config: ElectraConfig) -> Mapping[str, torch.Tensor]:
    return embedding_buffers(config, "electra.embeddings")


def _build(config: ElectraConfig) -> nn.Module:
    model: nn.Module = ElectraForSequenceClassification(config)
    return model


CLASSIFICATION = Family(
    model_type="electra",
    objective=Objective.CLASSIFICATION,
    build=_build,
    base_prefix="electra",
    new_in_a_task=("classifier",),
    blocks=_blocks,
    context=encoder_context,
    buffers=_buffers,
    first_columns=frozenset({"input_ids", "token_type_ids"}),
    last_columns=frozenset({"labels"}),
)
