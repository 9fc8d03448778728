"""Layers with their backward in two halves against the same layers under plain autograd."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.pytorch_utils import Conv1D

from stage_worker.engine.split_backward import SplitBackward, WeightQueue, add_weight_gradients

Gradients = list[torch.Tensor | None]

LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": nn.Linear,
    "linear without bias": lambda num_in, num_out: nn.Linear(num_in, num_out, bias=False),
    "conv1d": lambda num_in, num_out: Conv1D(num_out, num_in),
}
SHAPES: dict[str, tuple[tuple[int, ...], int, int]] = {
    "one position": ((1,), 16, 24),
    "2D": ((7,), 48, 130),
    "3D": ((4, 6), 130, 48),
    "4D": ((2, 3, 5), 16, 24),
    "one row": ((1, 5), 24, 2),
    "one output": ((4, 6), 8, 1),
    "one input": ((4, 6), 1, 8),
}


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


def picked(tensor: torch.Tensor) -> torch.Tensor:
    """Rows of a wider tensor, as a pooler picks the first position."""
    return torch.stack([tensor, tensor], dim=-2)[..., 0, :]


def columns_first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten()[0].expand(tensor.shape)


def tensors(lead: tuple[int, ...], num_in: int, num_out: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, g = (torch.randn(*lead, size, generator=generator) for size in (num_in, num_out))
    return x.to(dtype), g.to(dtype)


def gradients(layer: nn.Module, x: torch.Tensor) -> Gradients:
    return [x.grad, *(p.grad for p in layer.parameters())]


def in_one(layer: nn.Module, x: torch.Tensor, g: torch.Tensor) -> Gradients:
    """Return the gradients of input, weight and bias from plain autograd."""
    layer, x = copy.deepcopy(layer), x.detach().requires_grad_()
    layer(x).backward(g)
    return gradients(layer, x)


def in_halves(layer: nn.Module, x: torch.Tensor, g: torch.Tensor) -> Gradients:
    layer, x, queue = copy.deepcopy(layer), x.detach().requires_grad_(), WeightQueue()
    split = SplitBackward()
    split.bind(layer)
    with split.into(queue):
        out = layer(x)
        out.backward(g)
    assert all(p.grad is None for p in layer.parameters())
    add_weight_gradients(queue)
    assert not queue
    return gradients(layer, x)


def same_bits(found: Gradients, expected: Gradients) -> list[bool]:
    return [a is b if b is None else a is not None and torch.equal(a, b) for a, b in zip(found, expected, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("lead", "num_in", "num_out"), SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("kind", LAYERS)
def test_layer_in_halves_gives_the_same_bits(
    kind: str, lead: tuple[int, ...], num_in: int, num_out: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    layer = LAYERS[kind](num_in, num_out).to(dtype)
    x, g = tensors(lead, num_in, num_out, dtype)
    for lay in (contiguous, picked, columns_first, expanded):
        assert all(same_bits(in_halves(layer, x, lay(g)), in_one(layer, x, lay(g)))), lay
    if len(lead) == 1 or kind != "conv1d":  # which takes a view of its input
        assert all(same_bits(in_halves(layer, picked(x), g), in_one(layer, picked(x), g)))


def test_layer_in_halves_where_autograd_uses_another_kernel_agrees_within_1e_6() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(384, 512)
    for lead, other_g in (((7,), contiguous), ((4, 6), columns_first)):
        x, g = tensors(lead, 384, 512, torch.float32)
        x, g = columns_first(x), other_g(g)
        for found, expected in zip(in_halves(layer, x, g), in_one(layer, x, g), strict=True):
            assert found is not None
            assert expected is not None
            assert (found - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.parametrize("frozen", [("weight",), ("bias",), ("weight", "bias")])
@pytest.mark.parametrize("kind", ["linear", "conv1d"])
def test_frozen_parameter_gets_no_gradient_and_the_others_the_same(kind: str, frozen: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    layer = LAYERS[kind](16, 24)
    for name in frozen:
        layer.get_parameter(name).requires_grad_(False)
    found = in_halves(layer, *tensors((4, 6), 16, 24, torch.float32))
    assert all(same_bits(found, in_one(layer, *tensors((4, 6), 16, 24, torch.float32))))
    assert [name for name, grad in zip(("x", "weight", "bias"), found, strict=True) if grad is None] == list(frozen)


def test_layer_whose_input_needs_no_gradient_is_queued() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(16, 24)
    layer, split, queue = copy.deepcopy(plain), SplitBackward(), WeightQueue()
    x, g = tensors((4, 6), 16, 24, torch.float32)
    plain(x).backward(g)
    split.bind(layer)
    with split.into(queue):
        layer(x).backward(g)
    add_weight_gradients(queue)
    assert x.grad is None
    assert torch.equal(layer.weight.grad, plain.weight.grad)
    assert torch.equal(layer.bias.grad, plain.bias.grad)


class Shared(nn.Module):
    """Applies its layers more than once, as a model with shared layers does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.conv = Conv1D(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(torch.tanh(self.layer(self.conv(self.layer(x))))) + self.conv(x)
        return out


@pytest.mark.parametrize("late", [False, True], ids=["W after its I", "W after all I"])
def test_layer_applied_more_than_once_gives_the_same_bits_over_microbatches(late: bool) -> None:
    torch.manual_seed(0)
    plain = Shared()
    model, split, queues = copy.deepcopy(plain), SplitBackward(), [WeightQueue() for _ in range(3)]
    split.bind(model)
    inputs = torch.randn(3, 4, 6, 16)
    for x, queue in zip(inputs, queues, strict=True):
        plain(x).square().sum().backward()
        with split.into(queue):
            model(x).square().sum().backward()
        assert len(queue) == 5
        if not late:
            add_weight_gradients(queue)
    if late:
        assert all(p.grad is None for p in model.parameters())
        for queue in queues:
            add_weight_gradients(queue)
    for (name, found), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad), name


def test_layer_that_is_recomputed_in_its_backward_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    plain = Shared()
    model, split, queue = copy.deepcopy(plain), SplitBackward(), WeightQueue()
    split.bind(model)
    x = torch.randn(4, 6, 16)
    plain(x).square().sum().backward()
    with split.into(queue):
        out = checkpoint(model, x, use_reentrant=False, preserve_rng_state=False)
    assert not queue
    with split.into(queue):
        out.square().sum().backward()
    add_weight_gradients(queue)
    for (name, found), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad), name


def test_what_waits_is_the_inputs_and_output_gradients_without_a_graph() -> None:
    model, split, queue = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 8)), SplitBackward(), WeightQueue()
    split.bind(model)
    with split.into(queue):
        model(torch.randn(5, 16, requires_grad=True)).sum().backward()
    last, first = queue
    assert last.weight is model[2].weight
    assert first.weight is model[0].weight
    for work, num_in, num_out in ((last, 24, 8), (first, 16, 24)):
        assert work.x is not None
        assert (work.x.shape, work.g_NO.shape) == ((5, num_in), (5, num_out))
        assert not work.x.requires_grad
        assert not work.g_NO.requires_grad


@pytest.mark.parametrize(("frozen", "waiting"), [("weight", [(False, 1)]), ("bias", [(True, 1)]), ("weight bias", [])])
def test_nothing_waits_for_a_frozen_parameter(frozen: str, waiting: list[tuple[bool, int]]) -> None:
    layer, split, queue = nn.Linear(16, 24), SplitBackward(), WeightQueue()
    for name in frozen.split():
        layer.get_parameter(name).requires_grad_(False)
    split.bind(layer)
    with split.into(queue):
        layer(torch.randn(5, 16, requires_grad=True)).sum().backward()
    assert [(work.x is not None, len(work.parameters)) for work in queue] == waiting


def test_bound_layer_without_a_queue_is_plain_autograd() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(16, 24)
    layer, split = copy.deepcopy(plain), SplitBackward()
    split.bind(layer)
    with split.into([]):
        pass
    x, g = tensors((4, 6), 16, 24, torch.float32)
    plain(x).backward(g)
    layer(x).backward(g)
    assert torch.equal(layer.weight.grad, plain.weight.grad)


def test_bound_layer_without_gradients_queues_nothing() -> None:
    layer, split, queue = nn.Linear(16, 24), SplitBackward(), WeightQueue()
    split.bind(layer)
    with split.into(queue), torch.no_grad():
        assert not layer(torch.randn(3, 16)).requires_grad
    assert not queue


class Doubled(nn.Linear):
    """A linear layer with a forward of its own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_layer_with_a_forward_of_its_own_is_left_to_autograd() -> None:
    layer, split, queue = Doubled(16, 24), SplitBackward(), WeightQueue()
    split.bind(layer)
    with split.into(queue):
        layer(torch.ones(3, 16)).sum().backward()
    assert not queue
    assert layer.weight.grad.unique().tolist() == [6.0]
