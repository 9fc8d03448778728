"""Token-level objectives: every counted token weighs the same, whichever microbatch or replica it is in."""

from dataclasses import replace

import pytest
import torch

from benchmarks.local_case import LocalCase, LocalStep, batch_of
from stage_worker.engine.commands import Phase
from stage_worker.engine.loss import NOT_COUNTED
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.matrix import ModelFolder
from tests.integration.parity.models import AUTO, MODELS
from tests.integration.parity.reference import assert_close, takes_types

pytestmark = pytest.mark.timeout(180)

each_objective = pytest.mark.parametrize("name", ["bert-masked_lm", "gpt2-causal_lm"])


def case_of(name: str, model_folder: ModelFolder, lengths: tuple[int, ...]) -> LocalCase:
    return LocalCase(
        model={},
        folder=model_folder(name, 4),
        objective=MODELS[name].objective,
        steps=(LocalStep(lengths),),
        records_gradients=True,
    )


def counted(case: LocalCase) -> list[int]:
    """Return the counted tokens of each row of the first step."""
    lengths = case.steps[0].lengths
    labels = batch_of(case, lengths, range(len(lengths)), phase=Phase.TRAIN, step=1).labels
    assert labels is not None
    return (labels != NOT_COUNTED).sum(1).tolist()


def one_and_nine(case: LocalCase) -> LocalCase:
    """Return the case with a seed that gives its two rows one and nine counted tokens."""
    seeded = (replace(case, seed=seed) for seed in range(1000))
    return next(each for each in seeded if counted(each) == [1, 9])


@pytest.mark.parametrize(("pp", "num_microbatches", "dp"), [(1, 2, 1), (2, 2, 1), (1, 1, 2), (2, 1, 2)])
@each_objective
def test_one_token_in_one_microbatch_weighs_as_each_of_nine_in_another(
    name: str, pp: int, num_microbatches: int, dp: int, *, model_folder: ModelFolder, run: Run, train: Train
) -> None:
    """H28: not the mean of the means of two microbatches, or of two replicas."""
    case = one_and_nine(case_of(name, model_folder, (2, 10) if name.startswith("gpt2") else (4, 24)))
    case = replace(case, pp=pp, num_microbatches=num_microbatches, dp=dp)
    result, expected = run(case), train(case)
    replicas = [result.steps(case.last_worker(dp_rank=dp_rank))[0]["loss_sums"] for dp_rank in range(dp)]
    one, nine = (loss for replica in replicas for loss in replica)
    assert (one + nine) / 10 == pytest.approx(expected.losses[0], abs=1e-6)
    assert abs((one + nine / 9) / 2 - expected.losses[0]) > 1e-3, "both means are one: the rows tell nothing"
    assert_close(result.merged("gradient/1"), expected.gradients[0], limit=1e-6)


@each_objective
def test_microbatch_without_a_counted_token_adds_nothing(
    name: str, *, model_folder: ModelFolder, run: Run, train: Train
) -> None:
    case = replace(case_of(name, model_folder, (1, 1, 9, 14, 5)), pp=2, num_microbatches=4)
    seeded = (replace(case, seed=seed) for seed in range(1000))
    case = next(each for each in seeded if counted(each)[:2] == [0, 0])
    result, expected = run(case), train(case)
    assert result.steps(1)[0]["loss_sums"][0] == 0.0
    assert_close(result.merged("gradient/1"), expected.gradients[0], limit=1e-6)


@pytest.mark.parametrize("pp", [1, 2, 4])
@each_objective
def test_evaluation_tells_each_rows_loss_and_tokens(name: str, pp: int, *, model_folder: ModelFolder, run: Run) -> None:
    lengths = (9, 3, 14, 7, 21, 8, 2, 30, 6, 11)
    case = case_of(name, model_folder, lengths)
    case = replace(case, pp=pp, num_microbatches=4, steps=(LocalStep(lengths, evaluates=True),))
    told = run(case).steps(pp - 1, "EVALUATE")[0]["rows"]
    model = AUTO[case.objective].from_pretrained(case.folder).eval()
    for row, outputs in enumerate(told):
        batch = batch_of(case, lengths, [row], phase=Phase.EVALUATE, step=1)
        assert batch.labels is not None
        types = {"token_type_ids": batch.token_type_ids_BL} if takes_types(model) else {}
        with torch.no_grad():
            logits = model(input_ids=batch.input_ids_BL, attention_mask=batch.attention_mask_BL, **types).logits
        counts = batch.labels != NOT_COUNTED
        chances = logits.log_softmax(-1)[counts].gather(1, batch.labels[counts][:, None])
        assert (outputs["row_id"], outputs["label"]) == (row, counts.sum())
        assert outputs["outputs"] == [pytest.approx(-chances.sum().item(), rel=1e-5)]
