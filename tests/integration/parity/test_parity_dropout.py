"""Dropout and new parameters: random, but the same every time; see also test_parity_bits."""

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from benchmarks.local_pool import LocalPool
from tests.integration.parity.conftest import Run
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_same_bits

pytestmark = pytest.mark.timeout(180)

DROPS = TINY | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
STEPS = (LocalStep((7, 12, 32, 9, 5, 6, 8, 20)), LocalStep((8, 8, 16, 16, 8, 8, 5, 5)))


def test_dropout_twice_gives_the_same_losses(pool: LocalPool) -> None:
    case = LocalCase(model=DROPS, pp=2, num_microbatches=4, steps=STEPS, seed=3)
    first, second = pool.run(case), pool.run(case)
    assert [step["loss_sums"] for step in first.steps(1)] == [step["loss_sums"] for step in second.steps(1)]
    assert_same_bits(second.merged("final"), first.merged("final"))


def test_new_parameters_are_the_same_in_any_layout(run: Run) -> None:
    def untrained(pp: int) -> LocalCase:
        return LocalCase(model=TINY, pp=pp, steps=(LocalStep((4, 4), evaluates=True),), seed=11)

    first = run(untrained(1)).merged("final")
    for pp in (2, 4):
        assert_same_bits(run(untrained(pp)).merged("final"), first)
    other_seed = LocalCase(model=TINY, steps=(LocalStep((4, 4), evaluates=True),), seed=12)
    name = "bert.encoder.layer.2.attention.self.query.weight"
    assert not first[name].equal(run(other_seed).merged("final")[name])
    assert not first[name].equal(first[name.replace("layer.2", "layer.1")])
    assert first[name].std().item() == pytest.approx(0.02, rel=0.2)
