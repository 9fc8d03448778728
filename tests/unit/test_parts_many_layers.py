"""The parts of a model of very many layers are found with few of them, and are what all of them would have shown."""

from typing import Any

import pytest
import torch

from stage_worker import parts
from stage_worker.models.config import fit_to_task, new_config
from stage_worker.models.objective import Objective
from tests.unit.tiny_models import NEEDS, TOKEN_NEEDS, VALUES

LAYERS = 6


def config_of(model_type: str, objective: Objective, **values: Any) -> Any:
    needs = NEEDS if objective is Objective.CLASSIFICATION else TOKEN_NEEDS
    config = new_config({"model_type": model_type, **VALUES[model_type], **values}, needs, objective)
    fit_to_task(config, needs, attention="sdpa")
    return config


def test_model_parts_of_few_layers_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("gpt2", Objective.CAUSAL_LM, n_layer=LAYERS)  # embeddings and head share a table
    monkeypatch.setattr(parts, "_MOST_WIDTH", 1)  # a third of the time, and as good a comparison
    whole = parts.model_parts(config, Objective.CAUSAL_LM, dtype=torch.float32)
    assert [shared.blocks for shared in whole.shared] == [[0, LAYERS + 1]]
    monkeypatch.setattr(parts, "_MOST_LAYERS", LAYERS - 1)
    monkeypatch.setattr(parts, "_FEW_LAYERS", 2)
    assert parts.model_parts(config, Objective.CAUSAL_LM, dtype=torch.float32) == whole
    assert config.num_hidden_layers == LAYERS


@pytest.mark.parametrize(("model_type", "looked_at"), [("bert", 4), ("qwen2", 4), ("albert", LAYERS)])
def test_model_parts_look_at_few_layers_where_none_share_weights(
    model_type: str, looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StopError(Exception):
        pass

    def build(few: Any, _: Objective) -> None:
        assert few.num_hidden_layers == looked_at
        assert len(getattr(few, "layer_types", None) or range(looked_at)) == looked_at
        raise StopError

    monkeypatch.setattr(parts, "_MOST_LAYERS", LAYERS - 1)
    monkeypatch.setattr(parts, "build_skeleton", build)
    config = config_of(model_type, Objective.CLASSIFICATION, num_hidden_layers=LAYERS)
    with pytest.raises(StopError):
        parts.model_parts(config, Objective.CLASSIFICATION, dtype=torch.float32)
