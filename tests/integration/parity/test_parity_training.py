"""Any number of microbatches against one process: three steps each, gradients and weights.

By default rows of ``pairwise``; ``make parity-full`` runs every combination.
"""

from typing import Any

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.layouts import FULL
from tests.integration.parity.models import TINY
from tests.integration.parity.pairwise import covering, every
from tests.integration.parity.reference import assert_close, assert_same_bits

pytestmark = pytest.mark.timeout(180)

SCHEDULES = ("naive", "gpipe", "1f1b")
STAGES = (1, 2, 4)
STEPS = (
    LocalStep((7, 12, 32, 9, 5, 6, 8, 20)),
    LocalStep((8, 8, 16, 16, 8, 8, 5, 5)),
    LocalStep((30, 4, 4, 4, 11, 3, 2, 9)),
)
FACTORS = {"num_microbatches": (1, 2, 4, 8), "pp": STAGES, "schedule": SCHEDULES, "optimizer": ("adamw", "sgd")}
H25 = every({"num_microbatches": (1, 2, 4), "pp": STAGES, "schedule": ("1f1b",), "optimizer": ("sgd",)})
ROWS = every(FACTORS) if FULL else [*covering(FACTORS), *(row for row in H25 if row not in covering(FACTORS))]


def case_of(tiny: str, *, optimizer: str, **layout: Any) -> LocalCase:
    return LocalCase(
        model=TINY,
        folder=tiny,
        steps=STEPS,
        optimizer=optimizer,
        learning_rate=1e-4 if optimizer == "adamw" else 0.1,
        records_gradients=True,
        **layout,
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row.values())))
def test_training_with_any_number_of_microbatches_equals_one_process(
    row: dict[str, Any], *, tiny: str, run: Run, train: Train
) -> None:
    """H25 among them: pp 1, 2, 4 x microbatches 1, 2, 4. On one worker the bits are the same."""
    case = case_of(tiny, **row)
    expected, result, alone = train(case), run(case), run(case_of(tiny, **row | {"pp": 1, "schedule": "1f1b"}))
    steps = result.steps(case.pp - 1)
    assert len(steps) == len(STEPS)
    for index, step in enumerate(steps):
        assert_close(result.merged(f"gradient/{index + 1}"), expected.gradients[index], limit=1e-6)
        assert_close(result.merged(f"weight/{index + 1}"), expected.weights[index], limit=1e-6)
        assert sum(step["loss_sums"]) / 8 == pytest.approx(expected.losses[index], abs=1e-6)
        assert step["grad_norm"] == pytest.approx(expected.norms[index], rel=1e-5)
    assert_same_bits(result.merged("final"), alone.merged("final"))
    assert_same_bits(result.merged("moment"), alone.merged("moment"))
    assert [step["loss_sums"] for step in steps] == [step["loss_sums"] for step in alone.steps(0)]


def test_worker_holds_only_its_own_layers(tiny: str, run: Run) -> None:
    result = run(case_of(tiny, pp=4, num_microbatches=2, schedule="1f1b", optimizer="adamw"))
    embeddings, head = 50 * 16 + 32 * 16 + 2 * 16 + 2 * 16, 16 * 16 + 16 + 2 * 16 + 2
    layer = 4 * (16 * 16 + 16) + 2 * 16 + 16 * 32 + 32 + 32 * 16 + 16 + 2 * 16
    assert [worker["parameters"] for worker in result.workers] == [embeddings + layer, layer, layer, layer + head]


@pytest.mark.parametrize("pp", STAGES)
def test_strict_commands_give_the_same_bits(pp: int, *, tiny: str, run: Run) -> None:
    whole = case_of(tiny, pp=pp, num_microbatches=4, schedule="1f1b", optimizer="adamw")
    single = LocalCase(model=TINY, folder=tiny, pp=pp, num_microbatches=4, steps=STEPS, strict=True)
    assert_same_bits(run(single).merged("final"), run(whole).merged("final"))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_implementations_equal_one_process(attention: str, *, tiny: str, run: Run, train: Train) -> None:
    case = LocalCase(
        model=TINY, folder=tiny, pp=2, num_microbatches=4, steps=STEPS, attention=attention, records_gradients=True
    )
    assert_close(run(case).merged("gradient/3"), train(case).gradients[2], limit=1e-6)
