import math

import pytest
import torch

from stage_worker.engine.failure import NonFiniteError
from stage_worker.engine.norm import Norm, clip, sum_of_squares

NAMES = ("embedding.weight", "layer.0.weight", "layer.1.weight", "head.bias")


class Stages:
    """Adds the vectors of two workers, as the transport would."""

    def __init__(self) -> None:
        self.vectors: list[torch.Tensor] = []

    def gather(self, vector: torch.Tensor) -> torch.Tensor:
        self.vectors.append(vector.clone())
        return vector

    def add(self, vector: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.vectors).sum(0)


def vote(
    first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], losses: tuple[float, ...] = (0.5,)
) -> list[float | NonFiniteError]:
    """Return what each of two workers, with stages 0 and 1, finds."""
    norm, stages = Norm(NAMES, num_stages=2), Stages()
    parts = [({0: first}, ()), ({1: second}, losses)]
    for gradients, own_losses in parts:
        norm.vote(gradients, own_losses, stages.gather, step=7)  # what the worker alone would find
    return [norm.vote(gradients, own_losses, stages.add, step=7) for gradients, own_losses in parts]


def test_norm_is_over_both_stages_and_clipping_uses_it() -> None:
    """Norms 3 and 4 make 5; clipped to 1 they are 0.6 and 0.8, where clipping each alone would give 1 and 1."""
    first, second = {NAMES[0]: torch.full((3, 3), 1.0)}, {NAMES[3]: torch.full((4,), 2.0)}
    assert vote(first, second) == pytest.approx([5.0, 5.0], rel=1e-7)
    for gradients in (first, second):
        clip(gradients.values(), norm=5.0, max_norm=1.0)
    assert first[NAMES[0]].norm().item() == pytest.approx(0.6, abs=1e-6)
    assert second[NAMES[3]].norm().item() == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("max_norm", [0.0, 5.0, 7.0])
def test_clipping_leaves_small_gradients_and_no_limit_alone(max_norm: float) -> None:
    gradients = {NAMES[0]: torch.tensor([3.0, 4.0])}
    clip(gradients.values(), norm=5.0, max_norm=max_norm)
    assert gradients[NAMES[0]].tolist() == [3.0, 4.0]


def test_norm_does_not_depend_on_who_holds_which_parameter() -> None:
    torch.manual_seed(1)
    all_gradients = {name: torch.randn(40, 30) for name in NAMES[:3]} | {NAMES[3]: torch.randn(17)}
    names = list(all_gradients)
    norms = {
        vote({n: all_gradients[n] for n in names[:cut]}, {n: all_gradients[n] for n in names[cut:]})[0]
        for cut in range(5)
    }
    assert len(norms) == 1
    exact = math.sqrt(sum(g.double().square().sum().item() for g in all_gradients.values()))
    assert norms.pop() == pytest.approx(exact, rel=1e-7)


def test_sum_of_squares_is_near_float64() -> None:
    torch.manual_seed(2)
    gradient = torch.randn(300, 384) * 1e-3
    assert sum_of_squares(gradient).dtype is torch.float64
    assert sum_of_squares(gradient).item() == pytest.approx(gradient.double().square().sum().item(), rel=1e-7)
    assert sum_of_squares(torch.tensor(3.0)).item() == 9.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_gradient_that_is_not_finite_is_named_to_all_workers(value: float) -> None:
    bad = {NAMES[1]: torch.tensor([1.0, value])}
    for found in vote(bad, {NAMES[3]: torch.ones(2)}):
        assert isinstance(found, NonFiniteError)
        assert str(found) == "the gradient of layer.0.weight on stage 0 in step 7 is not finite"
        assert (found.stage, found.microbatch) == (0, None)


def test_gradients_that_are_not_finite_are_blamed_on_the_last_layer_where_the_backward_met_them_first() -> None:
    bad = torch.tensor([math.nan, math.nan])
    for found in vote({NAMES[0]: bad, NAMES[1]: bad}, {NAMES[2]: bad, NAMES[3]: torch.ones(2)}):
        assert isinstance(found, NonFiniteError)
        assert str(found) == f"the gradient of {NAMES[2]} on stage 1 in step 7 is not finite"
        assert found.stage == 1


def test_squares_that_overflow_count_as_not_finite() -> None:
    found = vote({}, {NAMES[3]: torch.full((2,), 1e30)})
    assert [type(each) for each in found] == [NonFiniteError, NonFiniteError]


def test_loss_that_is_not_finite_is_named_with_its_microbatch() -> None:
    for found in vote({NAMES[0]: torch.ones(2)}, {NAMES[3]: torch.full((2,), math.nan)}, (0.5, 0.25, math.nan)):
        assert isinstance(found, NonFiniteError)
        assert str(found) == "the loss of microbatch 2 on stage 1 in step 7 is not finite"
        assert (found.stage, found.microbatch) == (1, 2)
