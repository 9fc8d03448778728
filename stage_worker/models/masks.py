"""Attention masks in the form that the library's layers take, made before any hidden state is here.

B rows, L positions.
"""

from typing import Any

import torch
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_causal_mask,
    create_sliding_window_causal_mask,
)

from stage_worker.models.family import Context


def encoder_context(config: Any, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> Context:
    """Return what the layers of an encoder take: the mask alone."""
    return {"mask": bidirectional_mask(config, attention_mask_BL, dtype)}


def bidirectional_mask(config: Any, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """Return the mask of an encoder; None where no position pads."""
    mask: torch.Tensor | None = create_bidirectional_mask(
        config=config, inputs_embeds=_stand_in(attention_mask_BL, dtype), attention_mask=attention_mask_BL
    )
    return mask


def causal_mask(config: Any, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """Return the mask of layers that look back; None where no position pads and sdpa does so by itself."""
    mask: torch.Tensor | None = create_causal_mask(
        config=config,
        inputs_embeds=_stand_in(attention_mask_BL, dtype),
        attention_mask=attention_mask_BL,
        cache=None,
    )
    return mask


def sliding_causal_mask(config: Any, attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """Return the mask of layers that look back ``config.sliding_window`` positions, their own included.

    None where no row is that long, no position pads and sdpa looks back by itself.
    """
    mask: torch.Tensor | None = create_sliding_window_causal_mask(
        config=config,
        inputs_embeds=_stand_in(attention_mask_BL, dtype),
        attention_mask=attention_mask_BL,
        cache=None,
    )
    return mask


def _stand_in(attention_mask_BL: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # A mask depends on rows, width and type of the hidden state only, so an empty one does.
    return torch.empty(*attention_mask_BL.shape, 0, dtype=dtype)
