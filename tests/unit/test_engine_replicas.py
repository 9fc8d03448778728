import torch
from torch import nn

from stage_worker.engine import replicas
from stage_worker.engine.replicas import add_over_replicas


def parameters(*sizes: tuple[int, ...]) -> dict[str, nn.Parameter]:
    named = {f"p{index}": nn.Parameter(torch.zeros(size)) for index, size in enumerate(sizes)}
    for index, parameter in enumerate(named.values()):
        parameter.grad = torch.full_like(parameter, float(index + 1))
    return named


def test_replicas_each_gradient_becomes_the_sum() -> None:
    own = parameters((2, 3), (4,), (1,))
    add_over_replicas(own, lambda tensor: tensor * 10)
    assert [p.grad.shape for p in own.values()] == [(2, 3), (4,), (1,)]
    assert [p.grad.unique().item() for p in own.values()] == [10.0, 20.0, 30.0]


def test_replicas_missing_gradient_counts_as_zero() -> None:
    own = parameters((2,), (3,))
    own["p1"].grad = None
    add_over_replicas(own, lambda tensor: tensor + 5)
    assert own["p0"].grad.tolist() == [6.0, 6.0]
    assert own["p1"].grad.tolist() == [5.0, 5.0, 5.0]


def test_replicas_frozen_parameter_takes_no_part() -> None:
    own = parameters((2,), (3,))
    own["p0"].requires_grad_(False).grad = None
    sizes: list[int] = []
    add_over_replicas(own, lambda tensor: sizes.append(tensor.numel()) or tensor)
    assert sizes == [3]
    assert own["p0"].grad is None


def test_replicas_buckets_are_bounded_and_follow_the_order_of_names(monkeypatch) -> None:
    monkeypatch.setattr(replicas, "BUCKET_ELEMENTS", 6)
    exchanged: list[list[float]] = []
    add_over_replicas(
        parameters((4,), (2,), (3,), (9,), (1,)), lambda tensor: exchanged.append(tensor.tolist()) or tensor
    )
    assert exchanged == [[1.0] * 4 + [2.0] * 2, [3.0] * 3, [4.0] * 9, [5.0]]
