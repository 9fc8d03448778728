"""Frozen layers and new heads: what is trained is what should be, and starts alike on every replica."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import BertModel

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.conftest import Run
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_copies_are_equal, assert_same_bits

pytestmark = pytest.mark.timeout(180)

EIGHT = (7, 12, 32, 9, 5, 6, 8, 20)
UNTRAINED = (LocalStep(EIGHT, evaluates=True),)
"""A job of no update."""
LAYERS = ("bert.encoder.layer.0.", "bert.encoder.layer.1.")
DROPS = TINY | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


@pytest.mark.parametrize("recompute", ["full", 1, "except_last"])
@pytest.mark.parametrize(("schedule", "num_chunks"), [("1f1b", 1), ("zbh1", 1), ("zbv", 2)])
def test_stages_after_a_frozen_one_train_the_same_with_recomputation(
    schedule: str, num_chunks: int, recompute: int | str, *, run: Run
) -> None:
    """H56: embeddings and layers 0 and 1 are frozen; under 1f1b that is all of worker 0."""
    case = LocalCase(
        model=DROPS,
        schedule=schedule,
        num_chunks=num_chunks,
        pp=2,
        num_microbatches=4,
        steps=(LocalStep(EIGHT),) * 2,
        frozen_layers=2,
        max_grad_norm=0.02,
        learning_rate=1e-3,
        records_gradients=True,
    )
    whole = replace(case, schedule="1f1b", num_chunks=1, pp=1)
    result, plain = run(replace(case, recompute=recompute)), run(whole)
    free = run(replace(whole, frozen_layers=None))
    frozen = {name for name in plain.merged("final") if name.startswith(("bert.embeddings", *LAYERS))}
    gradients = result.merged("gradient/1")
    assert gradients.keys() == plain.merged("final").keys() - frozen
    assert_same_bits(gradients, plain.merged("gradient/1"))
    assert_same_bits(gradients, {name: free.merged("gradient/1")[name] for name in gradients})
    assert all(gradient.any() for gradient in gradients.values())
    assert_same_bits(result.merged("final"), plain.merged("final"))
    start = run(replace(case, steps=UNTRAINED)).merged("final")
    for name, tensor in result.merged("final").items():
        assert tensor.equal(start[name]) == (name in frozen), name


@pytest.mark.parametrize("pp", [1, 2])
def test_new_heads_of_two_replicas_start_equal_and_stay_equal(pp: int, *, scratch: Path, run: Run) -> None:
    """H59: the folder has no classifier and no pooler; before the first step and after five."""
    folder = scratch / f"bare-{pp}"
    torch.manual_seed(4)
    BertModel(BertModel.config_class(**{k: v for k, v in DROPS.items() if k != "model_type"})).save_pretrained(folder)
    case = LocalCase(model={}, folder=str(folder), pp=pp, dp=2, num_microbatches=2, steps=(LocalStep(EIGHT),) * 5)
    before = run(replace(case, steps=UNTRAINED))
    after = run(case)
    for result in (before, after):
        assert_copies_are_equal(result.tensors, "final/")
    assert_same_bits(before.merged("final"), run(replace(case, pp=1, dp=1, steps=UNTRAINED)).merged("final"))
    assert not after.merged("final")["classifier.weight"].equal(before.merged("final")["classifier.weight"])
    first, second = (after.steps(last) for last in (pp - 1, 2 * pp - 1))
    assert [step["loss_sums"] for step in first] != [step["loss_sums"] for step in second]
