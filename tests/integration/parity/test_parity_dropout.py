"""Dropout and new parameters: random, but the same in every layout and every time."""

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from benchmarks.local_pool import LocalPool
from tests.integration.parity.conftest import Run
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_same_bits

pytestmark = pytest.mark.timeout(180)

DROPS = TINY | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
STEPS = (LocalStep((7, 12, 32, 9, 5, 6, 8, 20)), LocalStep((8, 8, 16, 16, 8, 8, 5, 5)))


def losses(result_steps: list[dict[str, list[float]]]) -> list[list[float]]:
    return [step["loss_sums"] for step in result_steps]


def case_of(*, pp: int = 1, schedule: str = "1f1b", seed: int = 3, model: dict[str, object] = DROPS) -> LocalCase:
    return LocalCase(model=model, pp=pp, schedule=schedule, num_microbatches=4, steps=STEPS, seed=seed)


def test_dropout_twice_gives_the_same_losses(pool: LocalPool) -> None:
    first, second = pool.run(case_of(pp=2)), pool.run(case_of(pp=2))
    assert losses(first.steps(1)) == losses(second.steps(1))
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
