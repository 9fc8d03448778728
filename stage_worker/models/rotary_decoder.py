"""What decoders with rotary positions share: blocks for sequence classification, and the angles of their positions.

B rows, L positions, D hidden, E width of an attention head, C classes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from stage_worker.models.family import Block, BlockCall, Context, Family, Inputs
from stage_worker.models.last_token import at_last_token
from stage_worker.models.objective import Objective

MaskName = Callable[[Any, int], str]
"""(config, index of a layer in the whole model) -> name of its mask in the context."""


def angles(rotary: nn.Module, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> Context:
    """Return ``cos`` and ``sin`` of every position, both of shape (1, L, E), computed in fp32 and then cast.

    Args:
        rotary: the family's own module, new: in a model that is loaded in parts its buffers are garbage.
        attention_mask_BL: on the CPU.
        dtype: of the hidden state.
    """
    positions_1L = torch.arange(attention_mask_BL.shape[1]).unsqueeze(0)
    cos_1LE, sin_1LE = rotary(torch.empty(0, dtype=dtype), positions_1L)
    return {"cos": cos_1LE, "sin": sin_1LE}


def rotary_classifier(
    *,
    model_type: str,
    build: Callable[[Any], nn.Module],
    context: Callable[[Any, torch.Tensor, torch.dtype], Context],
    mask_name: MaskName,
) -> Family:
    """Return a family for sequence classification.

    Args:
        model_type: of its configs.
        build: makes the whole model.
        context: gives ``cos``, ``sin`` and the masks.
        mask_name: says which of the masks a layer takes.
    """

    def blocks(config: Any) -> tuple[Block, ...]:
        names = [f"model.layers.{index}" for index in range(config.num_hidden_layers)]
        layers = (Block(name, (name,), _layer(index, mask_name(config, index))) for index, name in enumerate(names))
        return (
            Block("model.embed_tokens", ("model.embed_tokens",), _embed),
            *layers,
            Block("score", ("model.norm", "score"), _classify),
        )

    return Family(
        model_type=model_type,
        objective=Objective.CLASSIFICATION,
        build=build,
        base_prefix="model",
        new_in_a_task=("score",),
        blocks=blocks,
        context=context,
        buffers=_no_buffers,
        first_columns=frozenset({"input_ids"}),
        last_columns=frozenset({"input_ids", "labels"}),
    )


def _embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    out_BLD: torch.Tensor = model.model.embed_tokens(inputs.batch.input_ids_BL)
    return out_BLD


def _layer(index: int, mask_name: str) -> BlockCall:
    def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        context = inputs.context
        out_BLD: torch.Tensor = model.model.layers[index](
            h_BLD, attention_mask=context[mask_name], position_embeddings=(context["cos"], context["sin"])
        )
        return out_BLD

    return call


def _classify(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
    assert inputs.batch.input_ids_BL is not None
    # All positions are scored though one a row counts: a single row would be multiplied in another order.
    logits_BLC = model.score(model.model.norm(h_BLD))
    return at_last_token(logits_BLC, inputs.batch.input_ids_BL, pad_token_id=model.config.pad_token_id)


def _no_buffers(config: Any) -> Mapping[str, torch.Tensor]:
    return {}
