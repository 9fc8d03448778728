"""Stages of any sizes: the same job with other layers on each stage has the same bits, dropout included (case H63)."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.local_case import LocalCase
from tests.integration.parity.conftest import Run
from tests.integration.parity.matrix import steps_of
from tests.integration.parity.models import MODELS
from tests.integration.parity.reference import assert_copies_are_equal, assert_same_bits

pytestmark = pytest.mark.timeout(180)

NUM_LAYERS = 7
LAYOUTS: dict[str, dict[str, Any]] = {
    "1f1b": {"schedule": "1f1b", "pp": 3},
    "interleaved": {"schedule": "interleaved", "pp": 2, "num_chunks": 2},
    "zbv": {"schedule": "zbv", "pp": 2, "num_chunks": 2},
}
SPLITS: dict[str, dict[str, Any]] = {
    "1f1b": {"layers_per_stage": (1, 5, 1)},
    "interleaved": {"layers_per_stage": (1, 3, 1, 2), "recompute": (1, 2, 0, 2)},
    "zbv": {"layers_per_stage": (3, 1, 2, 1), "recompute": (2, 0, 2, 1)},
}
"""None as an even split has it; recomputed layers are some that the even split does not have there."""


@pytest.mark.parametrize(
    ("name", "split"),
    [*((name, split) for name in ("bert-masked_lm", "gpt2-causal_lm") for split in SPLITS), ("albert", "1f1b")],
)
def test_an_uneven_split_gives_the_bits_of_an_even_one_and_of_one_worker(name: str, split: str, *, run: Run) -> None:
    """Clipped gradients, so that every stage's norm counts; losses, gradients, weights and moments of two steps."""
    model = MODELS[name]
    plain = LocalCase(
        model=model.config(num_layers=NUM_LAYERS, dropout=0.1),
        objective=model.objective,
        num_microbatches=4,
        steps=steps_of(4),
        learning_rate=1e-3,
        max_grad_norm=0.02,
        records_gradients=True,
        seed=3,
    )
    even = replace(plain, **LAYOUTS[split])
    case = replace(even, **SPLITS[split])
    result = run(case)
    assert_copies_are_equal(result.tensors, "final/")
    for other in (even, plain):
        expected = run(other)
        told, wanted = result.steps(case.last_worker()), expected.steps(other.last_worker())
        assert [step["loss_sums"] for step in told] == [step["loss_sums"] for step in wanted]
        assert [step["grad_norm"] for step in told] == [step["grad_norm"] for step in wanted]
        assert min(step["grad_norm"] for step in told) > 0.02, "nothing was clipped"
        for tensors in ("gradient/1", "gradient/2", "weight/1", "weight/2", "final", "moment"):
            assert_same_bits(result.merged(tensors), expected.merged(tensors))


def test_each_worker_holds_the_layers_that_it_is_given(run: Run) -> None:
    model = MODELS["bert"].config(num_layers=NUM_LAYERS)
    case = LocalCase(model=model, num_microbatches=4, steps=steps_of(4), **LAYOUTS["zbv"], **SPLITS["zbv"])
    held = [
        {int(name.split(".layer.")[1].split(".")[0]) for name in own if name.startswith("final/") and ".layer." in name}
        for own in run(case).tensors
    ]
    assert held == [{0, 1, 2, 6}, {3, 4, 5}]
