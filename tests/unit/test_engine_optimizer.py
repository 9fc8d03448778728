import itertools

import pytest
import torch
from torch import nn

from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule
from stage_worker.engine.optimizer import Optimizer, OptimizerName, OptimizerSettings, decayed_names
from stage_worker.models.families import SUPPORTED
from tests.unit.tiny_models import load_tiny


def settings(name: OptimizerName = OptimizerName.ADAMW, **changes: float) -> OptimizerSettings:
    rate = LearningRate(base=0.1, schedule=LearningRateSchedule.CONSTANT, warmup_fraction=0, total_steps=10)
    return OptimizerSettings(name=name, learning_rate=rate, weight_decay=0.1, max_grad_norm=0, **changes)


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_weight_decay_without_gradient_shrinks_matrices_and_nothing_else(pp: int) -> None:
    """lr 0.1 and decay 0.1: exactly x 0.99; biases and norms stay, whatever the cut."""
    checked = 0
    for stage in range(pp):
        model = load_tiny(stage=stage, pp=pp)
        parameters = model.parameters(stage)
        for parameter in parameters.values():
            parameter.data.fill_(2.0)
            parameter.grad = torch.zeros_like(parameter)
        Optimizer(parameters, decayed=decayed_names(model.model), settings=settings()).apply()
        for name, parameter in parameters.items():
            stays = name.endswith("bias") or "LayerNorm" in name
            assert parameter.unique().tolist() == pytest.approx([2.0 if stays else 2.0 * 0.99], rel=1e-7), name
            checked += 1
    assert checked == 73


@pytest.mark.parametrize("model_type", SUPPORTED)
def test_decayed_names_of_every_family_are_its_matrices(model_type: str) -> None:
    """In these models biases and the weights of norms, and they alone, have one dimension."""
    model = load_tiny(model_type).model
    assert decayed_names(model) == {name for name, p in model.named_parameters() if p.dim() > 1}


@pytest.mark.parametrize("name", list(OptimizerName))
def test_optimizer_updates_like_torch(name: OptimizerName) -> None:
    torch.manual_seed(0)
    own = {"w": nn.Parameter(torch.randn(5, 3)), "bias": nn.Parameter(torch.randn(3))}
    theirs = {key: nn.Parameter(p.detach().clone()) for key, p in own.items()}
    groups = [{"params": [theirs["w"]], "weight_decay": 0.1}, {"params": [theirs["bias"]], "weight_decay": 0.0}]
    reference = (torch.optim.AdamW if name is OptimizerName.ADAMW else torch.optim.SGD)(groups, lr=0.1)
    optimizer = Optimizer(own, decayed=frozenset({"w"}), settings=settings(name))
    for _ in range(3):
        for mine, other in zip(own.values(), theirs.values(), strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        optimizer.apply()
        reference.step()
        for mine, other in zip(own.values(), theirs.values(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)
    assert optimizer.updates_applied == 3


@pytest.mark.parametrize("name", list(OptimizerName))
def test_optimizer_uses_one_kernel_for_all_parameters(name: OptimizerName, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update tensor by tensor takes several times as long; stage 0 with its embedding would hold up the others."""
    kernel = {OptimizerName.ADAMW: "_fused_adamw_", OptimizerName.SGD: "_fused_sgd_"}[name]
    real, sizes = getattr(torch, kernel), []

    def counted(parameters: list[torch.Tensor], *others: object, **named: object) -> object:
        sizes.append(len(parameters))
        return real(parameters, *others, **named)

    monkeypatch.setattr(torch, kernel, counted)
    parameters = {key: nn.Parameter(torch.randn(3)) for key in ("a", "b", "c")}
    optimizer = Optimizer(parameters, decayed=frozenset(), settings=settings(name))
    for parameter in parameters.values():
        parameter.grad = torch.ones(3)
    optimizer.apply()
    assert sizes == [3]


def test_optimizer_state_is_told_by_parameter_name() -> None:
    own = {"a.weight": nn.Parameter(torch.ones(2, 2)), "b.bias": nn.Parameter(torch.ones(2))}
    optimizer = Optimizer(own, decayed=frozenset({"a.weight"}), settings=settings())
    assert optimizer.state(frozenset(own)) == {}
    for parameter in own.values():
        parameter.grad = torch.full_like(parameter, 2.0)
    optimizer.apply()
    state = optimizer.state(frozenset({"b.bias"}))
    assert state.keys() == {"b.bias.exp_avg", "b.bias.exp_avg_sq", "b.bias.step"}
    torch.testing.assert_close(state["b.bias.exp_avg"], torch.full((2,), 0.2))
    assert state["b.bias.step"].item() == 1.0


def test_optimizer_without_anything_to_train_counts_updates() -> None:
    frozen = {"w": nn.Parameter(torch.ones(2), requires_grad=False)}
    optimizer = Optimizer(frozen, decayed=frozenset(frozen), settings=settings())
    optimizer.apply()
    assert optimizer.updates_applied == 1
    assert frozen["w"].tolist() == [1.0, 1.0]


def test_decayed_names_are_the_same_for_every_cut() -> None:
    sets = [decayed_names(load_tiny(stage=stage, pp=pp).model) for pp in (1, 2, 4) for stage in range(pp)]
    assert all(a == b for a, b in itertools.pairwise(sets))
    assert "bert.embeddings.word_embeddings.weight" in sets[0]
    assert "bert.embeddings.LayerNorm.weight" not in sets[0]
