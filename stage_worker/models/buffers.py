"""Buffers that no file holds, as the library's constructors make them."""

from collections.abc import Mapping
from typing import Any

import torch


def embedding_buffers(config: Any, prefix: str, *, token_types: bool = True) -> Mapping[str, torch.Tensor]:
    """Return the buffers of the embeddings module ``prefix``, by name: positions, and token types where it has them."""
    positions = torch.arange(config.max_position_embeddings).expand((1, -1))
    buffers = {f"{prefix}.position_ids": positions}
    if token_types:
        buffers[f"{prefix}.token_type_ids"] = torch.zeros(positions.shape, dtype=torch.long)
    return buffers
