"""Any layout against one process: pp 1, 2, 4 x microbatches 1, 2, 4, 8 x schedules x optimizers, three steps each."""

import itertools

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_close, assert_same_bits

pytestmark = pytest.mark.timeout(180)

SCHEDULES = ("naive", "gpipe", "1f1b")
STAGES = (1, 2, 4)
STEPS = (
    LocalStep((7, 12, 32, 9, 5, 6, 8, 20)),
    LocalStep((8, 8, 16, 16, 8, 8, 5, 5)),
    LocalStep((30, 4, 4, 4, 11, 3, 2, 9)),
)
LAYOUTS = list(itertools.product(STAGES, (1, 2, 4, 8), SCHEDULES))


def case_of(tiny: str, *, pp: int, num_microbatches: int, schedule: str, optimizer: str) -> LocalCase:
    return LocalCase(
        model=TINY,
        folder=tiny,
        schedule=schedule,
        pp=pp,
        num_microbatches=num_microbatches,
        steps=STEPS,
        optimizer=optimizer,
        learning_rate=1e-4 if optimizer == "adamw" else 0.1,
        records_gradients=True,
    )


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize(("pp", "num_microbatches", "schedule"), LAYOUTS)
def test_training_in_any_layout_equals_one_process(
    pp: int, num_microbatches: int, schedule: str, optimizer: str, *, tiny: str, run: Run, train: Train
) -> None:
    case = case_of(tiny, pp=pp, num_microbatches=num_microbatches, schedule=schedule, optimizer=optimizer)
    expected = train(case)
    result = run(case)
    for index, step in enumerate(result.steps(pp - 1)):
        assert_close(result.merged(f"gradient/{index + 1}"), expected.gradients[index], limit=1e-6)
        assert_close(result.merged(f"weight/{index + 1}"), expected.weights[index], limit=1e-6)
        assert sum(step["loss_sums"]) / 8 == pytest.approx(expected.losses[index], abs=1e-6)
        assert step["grad_norm"] == pytest.approx(expected.norms[index], rel=1e-5)
    assert len(result.steps(pp - 1)) == len(STEPS)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("num_microbatches", [1, 2, 4, 8])
def test_training_across_schedules_and_stages_gives_the_same_bits(
    num_microbatches: int, optimizer: str, *, tiny: str, run: Run
) -> None:
    first, *others = (
        run(case_of(tiny, pp=pp, num_microbatches=num_microbatches, schedule=schedule, optimizer=optimizer))
        for pp, schedule in itertools.product(STAGES, SCHEDULES)
    )
    for other in others:
        assert_same_bits(other.merged("final"), first.merged("final"))
        assert_same_bits(other.merged("moment"), first.merged("moment"))
        assert (
            other.steps(len(other.workers) - 1)[-1]["loss_sums"] == first.steps(len(first.workers) - 1)[-1]["loss_sums"]
        )
        assert {s["grad_norm"] for w in other.workers for s in w["steps"]} == {
            s["grad_norm"] for s in first.workers[0]["steps"]
        }


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


@pytest.mark.parametrize("pp", STAGES)
def test_clipping_uses_the_norm_of_all_stages(pp: int, *, tiny: str, run: Run, train: Train) -> None:
    case = LocalCase(
        model=TINY,
        folder=tiny,
        pp=pp,
        num_microbatches=4,
        steps=STEPS,
        optimizer="sgd",
        max_grad_norm=0.05,
        learning_rate=0.1,
    )
    expected = train(case)
    assert min(expected.norms) > 0.05, "nothing would be clipped"
    assert_close(run(case).merged("final"), expected.weights[-1], limit=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_implementations_equal_one_process(attention: str, *, tiny: str, run: Run, train: Train) -> None:
    case = LocalCase(
        model=TINY, folder=tiny, pp=2, num_microbatches=4, steps=STEPS, attention=attention, records_gradients=True
    )
    assert_close(run(case).merged("gradient/3"), train(case).gradients[2], limit=1e-6)
