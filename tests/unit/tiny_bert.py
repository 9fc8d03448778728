"""A BERT of next to no size, for tests of the engine and of loading."""

from pathlib import Path
from typing import Any

import torch

from stage_worker.models.config import TaskNeeds, fit_to_task, new_config, pretrained_config
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.loading import load_model
from stage_worker.models.slices import StageSlice

NEEDS = TaskNeeds(labels=("no", "yes"), num_labels=2, pad_token_id=0, vocabulary_size=45)
CPU = torch.device("cpu")
VALUES: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


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
    config = pretrained_config(folder) if folder is not None else new_config(VALUES | changes, NEEDS)
    fit_to_task(config, NEEDS, attention=attention)
    return load_model(
        config,
        slices=[slice_of(each, pp=pp, num_layers=config.num_hidden_layers, splits=splits) for each in stages],
        layers_by_stage=(config.num_hidden_layers // pp,) * pp,
        folder=folder,
        seed=seed,
        device=device,
    )
