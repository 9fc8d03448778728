"""Evaluation under every schedule."""

from dataclasses import replace

import pytest
import torch
from transformers import BertForSequenceClassification

from benchmarks.local_case import LocalStep, batch_of
from stage_worker.engine.commands import Phase
from tests.integration.parity.conftest import Run
from tests.integration.parity.layouts import EACH, ON_FOUR, SIXTEEN, Folders, Layout
from tests.integration.parity.reference import assert_same_bits

pytestmark = pytest.mark.timeout(180)

ROWS = (9, 3, 14, 7, 21, 8, 2, 30, 6, 11)
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
ON_ONE = [
    Layout("interleaved", 1, 4, 2),
    Layout("looped_bfs", 1, 4, 3),
    Layout("zbv", 1, 4, 2),
    Layout("dualpipev", 1, 4, 2),
]
"""All stages on one worker."""


@pytest.mark.parametrize("layout", [*ON_ONE, *EACH, *ON_FOUR], ids=str)
def test_evaluation_under_any_schedule_gives_the_outputs_of_one_process(
    layout: Layout, *, folders: Folders, run: Run
) -> None:
    """Ten rows: microbatches of 3, 3, 2, 2 rows, or 2, 2, 1, 1, 1, 1, 1, 1."""
    case = layout.case(folders, (LocalStep(ROWS, evaluates=True),))
    batch = batch_of(case, ROWS, range(len(ROWS)), phase=Phase.EVALUATE, step=1)
    model = BertForSequenceClassification.from_pretrained(folders[layout.num_layers]).eval()
    with torch.no_grad():
        logits = model(
            input_ids=batch.input_ids_BL,
            token_type_ids=batch.token_type_ids_BL,
            attention_mask=batch.attention_mask_BL,
        ).logits
    result = run(case)
    last = case.last_worker()
    told = result.steps(last, "EVALUATE")[0]["rows"]
    assert [row["row_id"] for row in told] == list(range(10))
    assert [row["label"] for row in told] == batch.labels.tolist()
    torch.testing.assert_close(torch.tensor([row["outputs"] for row in told]), logits, rtol=1e-5, atol=1e-6)
    others = [worker for worker in range(layout.pp) if worker != last]
    assert all(not result.steps(worker, "EVALUATE")[0]["rows"] for worker in others)


@pytest.mark.parametrize("layout", [*ON_ONE, *EACH, *ON_FOUR], ids=str)
def test_evaluation_under_any_schedule_changes_no_training_state(layout: Layout, *, run: Run) -> None:
    """Between two steps, and between a step's last backward and its update."""
    drops = layout.model | DROPOUT
    quiet = layout.case(None, SIXTEEN[:2], model=drops, seed=3)
    between = LocalStep((3, 3, 2, 4, 5), evaluates=True)
    inside = [replace(step, evaluates_inside=(32, 3, 9, 9, 1)) for step in SIXTEEN[:2]]
    disturbed = replace(quiet, steps=(between, inside[0], between, inside[1], between))
    result = run(disturbed)
    assert [len(step["rows"]) for step in result.steps(quiet.last_worker(), "EVALUATE")] == [5] * 5
    assert_same_bits(result.merged("final"), run(quiet).merged("final"))
    assert_same_bits(result.merged("moment"), run(quiet).merged("moment"))


@pytest.mark.parametrize("layout", [*ON_ONE, *EACH, *ON_FOUR], ids=str)
def test_evaluation_under_any_schedule_keeps_no_activation(layout: Layout, *, run: Run) -> None:
    """Nothing is saved for a backward that never comes; a training step shows that it would be seen."""
    rows = ROWS[: layout.num_microbatches]
    evaluation = run(layout.case(None, (LocalStep(rows, evaluates=True),), watches_activations=True))
    training = run(layout.case(None, (LocalStep(rows),), watches_activations=True))
    assert all(worker["live_peak"] == 0 for worker in evaluation.workers)
    assert all(worker["live_peak"] > 0 for worker in training.workers)
