"""The library's own whole models, which the models in parts are held against."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification

from stage_worker.models.families import FAMILIES
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.microbatch import Microbatch
from stage_worker.models.objective import Objective
from tests.unit.tiny_models import load_tiny

AUTO: dict[Objective, Any] = {
    Objective.CLASSIFICATION: AutoModelForSequenceClassification,
    Objective.MASKED_LM: AutoModelForMaskedLM,
    Objective.CAUSAL_LM: AutoModelForCausalLM,
}


def save_random(
    model_type: str, objective: Objective = Objective.CLASSIFICATION, *, folder: Path, **changes: Any
) -> Any:
    """Return the library's whole model, every parameter random, and save it in ``folder``."""
    torch.manual_seed(4)
    config = load_tiny(model_type, objective, **changes).config
    model = AUTO[objective].from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 4)
    model.save_pretrained(folder)
    return model.eval()


def whole_of(model: LoadedModel) -> Any:
    """Return the library's whole model with the parameters of one that is held as a single part."""
    whole = AUTO[model.family.objective].from_config(model.config)
    whole.load_state_dict(model.held, strict=False)  # what is tied has one of its names only
    return whole.eval()


def whole_logits(model: Any, batch: Microbatch) -> torch.Tensor:
    """Return the logits of the library's own forward, which in training keeps no cache."""
    cache = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    types = {"token_type_ids": batch.token_type_ids_BL} if FAMILIES[model.config.model_type].takes_token_types else {}
    logits: torch.Tensor = model(
        input_ids=batch.input_ids_BL, attention_mask=batch.attention_mask_BL, **types, **cache
    ).logits
    return logits
