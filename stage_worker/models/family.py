"""The words that describe a model family: blocks, and what they read of a microbatch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stage_worker.models.microbatch import Microbatch
from stage_worker.models.objective import Objective

Context = Mapping[str, torch.Tensor | None]
"""What the layers take beside the hidden state, by name, such as ``mask``; a mask is None where no position pads."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """One microbatch on the device of a stage, with what its layers take beside the hidden state."""

    batch: Microbatch
    context: Context


BlockCall = Callable[[Any, torch.Tensor | None, Inputs], torch.Tensor]
"""(model, hidden state or None for the first block, inputs) -> hidden state, or logits from the last block."""


@dataclass(frozen=True, slots=True)
class Block:
    """The smallest piece of a model that a stage can hold."""

    name: str
    """Global name; dropout is seeded by it, so it is the same in every layout and no two blocks share it."""
    modules: tuple[str, ...]
    """Prefixes of the Hugging Face modules it consists of; several blocks may name one module, which they share."""
    call: BlockCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the models of one ``model_type`` are cut and called for one objective.

    Block 0 is the embeddings, blocks 1..L the layers, block L+1 the head. Parameters that the
    library ties, or that several blocks share, need no word here: they are found in the model.
    """

    model_type: str
    objective: Objective
    build: Callable[[Any], nn.Module]
    """Make the whole model of a config, on whatever device is the default."""
    base_prefix: str
    """Prefix that files of the bare model, without a head, lack."""
    new_in_a_task: tuple[str, ...]
    """Module prefixes that a pretrained folder may lack; they are initialised."""
    blocks: Callable[[Any], tuple[Block, ...]]
    """All blocks of a config's model, in order."""
    context: Callable[[Any, torch.Tensor, torch.dtype], Context]
    """(config, attention_mask_BL on the CPU, type of the hidden state) -> context; made before that state is here."""
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
