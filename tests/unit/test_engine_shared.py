"""Training a model whose layers share their weights and whose embedding is its head, cut in many ways."""

import functools
import math
from functools import partial

import pytest
import torch

from benchmarks.local_case import LocalCase
from stage_worker.engine.transport import TransferKind
from tests.unit.joined_workers import Outcome, differing, merged, run_joined, tiny_case
from tests.unit.shared_model import BIAS, MIX, WORDS, gradients_by_use, load_shared

LENGTHS = ((5, 3, 7, 4, 6, 2, 3, 5), (2, 9, 4, 4, 1, 6, 8, 3), (3, 3, 5, 7, 2, 4, 4, 6))
LAYOUTS = {
    "two stages": {"pp": 2},
    "three stages": {"pp": 3},
    "six stages": {"pp": 6},
    "two workers in a V, halves": {"pp": 2, "num_chunks": 2, "schedule": "zbv"},
    "three workers in a V, halves": {"pp": 3, "num_chunks": 2, "schedule": "zbv"},
    "two workers, three chunks each": {"pp": 2, "num_chunks": 3, "schedule": "interleaved"},
    "halves": {"pp": 3, "schedule": "zbh1"},
    "recomputed": {"pp": 3, "recompute": "full"},
    "recomputed halves": {"pp": 2, "num_chunks": 2, "schedule": "zbv", "recompute": "full"},
    "partly recomputed": {"pp": 2, "recompute": 2},
}


def shared_case(**values: object) -> LocalCase:
    return tiny_case(objective="masked_lm", lengths=LENGTHS, records_gradients=True, max_grad_norm=0.5, **values)


def run(frozen: frozenset[str] = frozenset(), **values: object) -> list[Outcome]:
    return run_joined(shared_case(**values), load=partial(load_shared, frozen=frozen))


@functools.cache
def on_one_worker(**values: object) -> tuple[dict[str, torch.Tensor], tuple[float | None, ...]]:
    outcomes = run(**values)
    return merged(outcomes, ""), tuple(step.grad_norm for step in outcomes[0].result.steps)


def in_layer_order(gradients: list[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, gradients)


def test_one_worker_adds_the_gradients_of_a_shared_parameter_in_layer_order() -> None:
    by_use = gradients_by_use(shared_case())
    expected = {f"gradient/1/{name}": in_layer_order(gradients) for name, gradients in by_use.items()}
    tensors, norms = on_one_worker()
    found = {name: tensor for name, tensor in tensors.items() if name.startswith("gradient/1/")}
    assert differing(found, expected) == []
    exact = math.sqrt(sum(gradient.double().square().sum().item() for gradient in expected.values()))
    assert norms[0] == pytest.approx(exact, rel=1e-7)
    a, b, c, d, e, f = by_use[MIX]
    for other in ((a + b + c) + (d + e + f), (a + b) + (c + d) + (e + f)):  # what sums by stage would be
        assert not torch.equal(other, found[f"gradient/1/{MIX}"])


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_cut_and_placement_gives_the_bits_of_one_worker(layout: dict[str, object]) -> None:
    """Gradients, norms and weights of all steps; that all holders have the same is asserted as they are merged."""
    outcomes = run(**layout)
    tensors, norms = on_one_worker()
    assert differing(merged(outcomes, ""), tensors) == []
    for outcome in outcomes:
        assert tuple(step.grad_norm for step in outcome.result.steps) == norms
    assert sum(WORDS in outcome.model.held for outcome in outcomes) == (1 if "zbv" in layout.values() else 2)
    assert sum(MIX in outcome.model.held for outcome in outcomes) == len(outcomes)


@pytest.mark.parametrize("layout", [{"pp": 3}, {"pp": 2, "num_chunks": 2, "schedule": "zbv"}], ids=["cut", "V"])
def test_replicas_are_added_after_the_uses(layout: dict[str, object]) -> None:
    outcomes = run(dp=2, **layout)
    tensors, norms = on_one_worker(dp=2)
    assert differing(merged(outcomes, ""), tensors) == []
    first, second = outcomes[: layout["pp"]], outcomes[layout["pp"] :]  # type: ignore[misc]
    for one, other in zip(first, second, strict=True):
        assert differing(one.weights(), other.weights()) == []
        assert tuple(step.grad_norm for step in other.result.steps) == norms


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_gives_the_same_bits_for_every_cut(precision: str) -> None:
    scale = {
        "initial": 256.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 9,
        "min": 1.0,
        "max": 512.0,
    }
    values = {"precision": precision, "loss_scale": scale if precision == "fp16" else None}
    expected = merged(run(**values), "")
    for layout in ({"pp": 3}, {"pp": 2, "num_chunks": 2, "schedule": "zbv", "recompute": "full"}):
        assert differing(merged(run(**values, **layout), ""), expected) == []


def test_optimizer_state_of_a_shared_parameter_is_told_once() -> None:
    outcomes = run(pp=3)
    told = [name for outcome in outcomes for name in outcome.result.tensors if name.startswith(("moment", "final"))]
    assert len(told) == len(set(told))
    assert {f"final/{WORDS}", f"moment/{MIX}.exp_avg"} <= set(outcomes[0].result.tensors)


@pytest.mark.parametrize("frozen", [{WORDS}, {MIX, BIAS}, {MIX, BIAS, WORDS}], ids=len)
def test_frozen_shared_parameter_has_no_message_no_gradient_and_stays(frozen: set[str]) -> None:
    outcomes = run(frozenset(frozen), pp=3)
    gradients = merged(outcomes, "gradient/")
    assert frozen.isdisjoint(name.split("/")[-1] for name in gradients)
    messages = {
        message.microbatch
        for outcome in outcomes
        for message, _, _ in outcome.transport.sent
        if message.kind is TransferKind.SHARED_GRADIENT
    }
    names = [WORDS, MIX, BIAS]  # numbers in canonical order
    assert messages == {number for number, name in enumerate(names) if name not in frozen}
    assert differing(gradients, merged(run(frozenset(frozen)), "gradient/")) == []
    initial = load_shared(shared_case(), outcomes[0].place).held
    final = merged(outcomes, "final/")
    assert {name for name, p in initial.items() if torch.equal(final[f"final/{name}"], p)} == frozen
