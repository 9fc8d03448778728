"""RoBERTa: sequence classification. Its positions come from the ids and the pad id; it is sent no token types.

B rows, L positions, D hidden, C classes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import RobertaConfig, RobertaForSequenceClassification

from stage_worker.models.buffers import embedding_buffers
from stage_worker.models.family import Block, BlockCall, Family, Inputs
from stage_worker.models.masks import encoder_context
from stage_worker.models.objective import Objective


def _embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    out_BLD: torch.Tensor = model.roberta.embeddings(input_ids=inputs.batch.input_ids_BL)
    return out_BLD


def _layer(index: int) -> BlockCall:
    def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        out_BLD: torch.Tensor = model.roberta.encoder.layer[index](h_BLD, inputs.context["mask"])
        return out_BLD

    return call


def _classify(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    logits_BC: torch.Tensor = model.classifier(h_BLD)
    return logits_BC


def _blocks(config: RobertaConfig) -> tuple[Block, ...]:
    names = [f"roberta.encoder.layer.{index}" for index in range(config.num_hidden_layers)]
    layers = (Block(name, (name,), _layer(index)) for index, name in enumerate(names))
    return (
        Block("roberta.embeddings", ("roberta.embeddings",), _embed),
        *layers,
        Block("classifier", ("classifier",), _classify),
    )


def _buffers(config: RobertaConfig) -> Mapping[str, torch.Tensor]:
    return embedding_buffers(config, "roberta.embeddings")


def _build(config: RobertaConfig) -> nn.Module:
    model: nn.Module = RobertaForSequenceClassification(config)
    return model


CLASSIFICATION = Family(
    model_type="roberta",
    objective=Objective.CLASSIFICATION,
    build=_build,
    base_prefix="roberta",
    new_in_a_task=("classifier",),
    blocks=_blocks,
    context=encoder_context,
    buffers=_buffers,
    first_columns=frozenset({"input_ids"}),
    last_columns=frozenset({"labels"}),
)
