"""The words that describe a model family: blocks, and what they read of a microbatch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stage_worker.models.microbatch import Microbatch


@dataclass(frozen=True, slots=True)
class Inputs:
    """One microbatch on the device of a stage, with the mask in the form that the layers take.

    B rows, L positions.
    """

    batch: Microbatch
    mask: torch.Tensor | None
    """None where no position pads."""


BlockCall = Callable[[Any, torch.Tensor | None, Inputs], torch.Tensor]
"""(model, hidden state or None for the first block, inputs) -> hidden state, or logits from the last block."""


@dataclass(frozen=True, slots=True)
class Block:
    """The smallest piece of a model that a stage can hold."""

    name: str
    """Global module name; dropout is seeded by it, so it is the same in every layout."""
    modules: tuple[str, ...]
    """Prefixes of the Hugging Face modules it consists of."""
    call: BlockCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the models of one ``model_type`` are cut and called.

    Block 0 is the embeddings, blocks 1..L the layers, block L+1 the head.
    """

    model_type: str
    build: Callable[[Any], nn.Module]
    """Make the whole model of a config, on whatever device is the default."""
    base_prefix: str
    """Prefix that files of the bare model, without a head, lack."""
    new_in_a_task: tuple[str, ...]
    """Module prefixes that a pretrained folder may lack; they are initialised."""
    blocks: Callable[[Any], tuple[Block, ...]]
    """All blocks of a config's model, in order."""
    mask: Callable[[Any, torch.Tensor], torch.Tensor | None]
    """(config, attention_mask_BL on the CPU) -> what the layers take; made before the hidden state is here."""
    buffers: Callable[[Any], Mapping[str, torch.Tensor]]
    """Buffers that no file holds, by name."""
    first_columns: frozenset[str]
    """Columns that the first stage reads beside the mask."""
    last_columns: frozenset[str]
    """Columns that the last stage reads beside the mask."""

    def columns(self, *, is_first: bool, is_last: bool) -> frozenset[str]:
        """Return the columns that a stage reads."""
        columns = frozenset({"attention_mask"})
        if is_first:
            columns |= self.first_columns
        if is_last:
            columns |= self.last_columns
        return columns
