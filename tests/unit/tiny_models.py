"""A model of next to no size of every family, whole or in parts, and rows for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from stage_worker.models.config import TaskNeeds, fit_to_task, new_config, pretrained_config
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.loading import load_model
from stage_worker.models.microbatch import Microbatch
from stage_worker.models.objective import Objective
from stage_worker.models.slices import StageSlice

VOCABULARY = 45
NEEDS = TaskNeeds(labels=("no", "yes"), num_labels=2, pad_token_id=0, vocabulary_size=VOCABULARY)
TOKEN_NEEDS = TaskNeeds(labels=(), num_labels=0, pad_token_id=0, vocabulary_size=VOCABULARY)
CPU = torch.device("cpu")

_SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_ENCODER = {**_SIZES, **_NO_DROPOUT, "max_position_embeddings": 32}
_ROTARY = {
    **{**_SIZES, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"max_position_embeddings": 32, "attention_dropout": 0.0},
}
VALUES: Mapping[str, dict[str, Any]] = {
    "bert": _ENCODER,
    "albert": {**_ENCODER, "embedding_size": 8, "classifier_dropout_prob": 0.0},
    "roberta": _ENCODER,
    "distilbert": {
        **{"dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 32},
        **{"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0},
    },
    "electra": {**_ENCODER, "embedding_size": 8},
    "gpt2": {
        **{"n_embd": 16, "n_layer": 4, "n_head": 2, "n_positions": 32},
        **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    },
    "llama": _ROTARY,
    "qwen2": _ROTARY,
}
"""Config of each family without dropout: four layers, hidden size 16, 32 positions."""


def slice_of(stage: int, *, pp: int, num_layers: int = 4, splits: bool = False) -> StageSlice:
    """Return one of ``pp`` equal stages."""
    each = num_layers // pp
    return StageSlice(
        stage=stage,
        first_layer=stage * each,
        num_layers=each,
        is_first=stage == 0,
        is_last=stage == pp - 1,
        splits_backward=splits,
    )


def load_tiny(
    model_type: str = "bert",
    objective: Objective = Objective.CLASSIFICATION,
    *,
    stage: int | tuple[int, ...] = 0,
    pp: int = 1,
    splits: bool = False,
    folder: Path | None = None,
    attention: str = "sdpa",
    seed: int = 0,
    device: torch.device = CPU,
    **changes: Any,
) -> LoadedModel:
    """Return one of ``pp`` stages or several, new or from ``folder``."""
    stages = (stage,) if isinstance(stage, int) else stage
    needs = NEEDS if objective is Objective.CLASSIFICATION else TOKEN_NEEDS
    if folder is not None:
        config = pretrained_config(folder, objective)
    else:
        config = new_config({"model_type": model_type, **VALUES[model_type], **changes}, needs, objective)
    fit_to_task(config, needs, attention=attention)
    return load_model(
        config,
        objective=objective,
        slices=[slice_of(each, pp=pp, num_layers=config.num_hidden_layers, splits=splits) for each in stages],
        layers_by_stage=(config.num_hidden_layers // pp,) * pp,
        folder=folder,
        seed=seed,
        device=device,
    )


def rows(lengths: tuple[int, ...]) -> Microbatch:
    """Return distinct rows of these lengths, padded with 0 to the longest."""
    generator = torch.Generator().manual_seed(1)
    width = max(lengths)
    mask_BL = torch.tensor([[1] * length + [0] * (width - length) for length in lengths])
    ids_BL = torch.randint(5, VOCABULARY, mask_BL.shape, generator=generator) * mask_BL
    types_BL = (torch.arange(width) > width // 2).long() * mask_BL
    return Microbatch(tuple(range(len(lengths))), ids_BL, types_BL, mask_BL, torch.zeros(len(lengths)))


def run_blocks(
    model: LoadedModel, batch: Microbatch, hidden: torch.Tensor | None = None, *, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return what the last of a worker's blocks gives for ``hidden``; ``dtype`` is that of its parameters."""
    context = model.family.context(model.config, batch.attention_mask_BL, dtype)
    for stage in model.stages.values():
        for block in stage.blocks.values():
            hidden = block.call(model.model, hidden, Inputs(batch, context))
    assert hidden is not None
    return hidden
