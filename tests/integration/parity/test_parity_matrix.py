"""Every family and objective in every kind of layout against one process of transformers.

The rows are chosen by ``pairwise.covering``; ``make parity-full`` runs all combinations.
"""

import pytest
import torch

from benchmarks.local_case import LocalCase, batch_of
from benchmarks.local_pool import CaseResult
from stage_worker.engine.commands import Phase
from stage_worker.engine.loss import NOT_COUNTED
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.matrix import FACTORS, LARGEST_NORM, ModelFolder, case_of, name_of, rows_of
from tests.integration.parity.models import AUTO, MODELS
from tests.integration.parity.pairwise import Row
from tests.integration.parity.reference import (
    assert_close,
    assert_copies_are_equal,
    takes_types,
    train_whole,
    whole_loss,
)

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("row", rows_of(FACTORS), ids=name_of)
def test_training_of_any_family_in_any_layout_equals_one_process(
    row: Row, *, model_folder: ModelFolder, run: Run, train: Train
) -> None:
    """H44 where gradients are clipped; three slices are three rounds of accumulation before one update."""
    optimizer, clips = str(row["optimizer"]), bool(row["clips"])
    case = case_of(
        row,
        model_folder,
        optimizer=optimizer,
        max_grad_norm=LARGEST_NORM if clips else 0.0,
        weight_decay=0.5 if optimizer == "adamw" else 0.01,
        records_gradients=True,
    )
    expected, result = train(case), run(case)
    assert not clips or min(expected.norms) > LARGEST_NORM, "nothing would be clipped"
    for index in range(len(case.steps)):
        for what, values in (("gradient", expected.gradients), ("weight", expected.weights)):
            assert_copies_are_equal(result.tensors, f"{what}/{index + 1}/")
            assert_close(result.merged(f"{what}/{index + 1}"), values[index], limit=1e-6)
        assert loss_of(result, case, index + 1) == pytest.approx(expected.losses[index], abs=1e-6)
        (norm,) = {result.steps(worker)[index]["grad_norm"] for worker in range(case.num_workers)}
        assert norm == pytest.approx(expected.norms[index], rel=1e-5)


def loss_of(result: CaseResult, case: LocalCase, step: int) -> float:
    """Return the mean over the whole global batch of what the replicas' last stages told."""
    lasts = [result.steps(case.last_worker(dp_rank=dp_rank))[step - 1] for dp_rank in range(case.dp)]
    setting = case.setting(case.steps[step - 1].lengths, phase=Phase.TRAIN, step=step, dp_rank=0)
    return sum(sum(last["loss_sums"]) for last in lasts) / setting.denominator


@pytest.mark.parametrize("name", MODELS)
def test_loss_of_the_one_process_is_the_librarys_own(name: str, *, model_folder: ModelFolder) -> None:
    """It takes labels as the data service serves them; the library shifts those of a causal model itself."""
    case = LocalCase(model={}, folder=model_folder(name, 4), objective=MODELS[name].objective)
    model = AUTO[case.objective].from_pretrained(case.folder).eval()
    lengths = (7, 12, 32, 9, 2)
    batch = batch_of(case, lengths, range(5), phase=Phase.TRAIN, step=1)
    labels = batch.labels
    if case.objective == "causal_lm":
        assert batch.input_ids_BL is not None
        labels = batch.input_ids_BL.masked_fill(batch.attention_mask_BL == 0, NOT_COUNTED)
    types = {"token_type_ids": batch.token_type_ids_BL} if takes_types(model) else {}
    own = model(input_ids=batch.input_ids_BL, attention_mask=batch.attention_mask_BL, labels=labels, **types).loss
    assert whole_loss(model, case, lengths, step=1).item() == pytest.approx(own.item(), rel=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_limit_of_the_comparison_is_above_the_rounding_of_fp32(name: str, *, model_folder: ModelFolder) -> None:
    """The one process itself, against the same in float64: so much is left to any order of additions."""
    row: Row = {"model": name, "schedule": "1f1b", "pp": 1, "recompute": "none"}
    case = case_of(row, model_folder, optimizer="sgd")
    found, exact = train_whole(case), train_whole(case, dtype=torch.float64)
    for index in range(len(case.steps)):
        assert_close(found.gradients[index], exact.gradients[index], limit=1e-6)
        assert_close(found.weights[index], exact.weights[index], limit=1e-6)
        assert found.losses[index] == pytest.approx(exact.losses[index], abs=1e-6)
