"""Evaluation: right outputs in order, and no trace in the training state."""

from dataclasses import replace

import pytest
import torch
from transformers import BertForSequenceClassification

from benchmarks.local_case import LocalCase, LocalStep, batch_of
from stage_worker.engine.commands import Phase
from tests.integration.parity.conftest import Run
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_same_bits

pytestmark = pytest.mark.timeout(180)

STEPS = (LocalStep((7, 12, 32, 9, 5, 6, 8, 20)), LocalStep((8, 8, 16, 16, 8, 8, 5, 5)))
ROWS = (9, 3, 14, 7, 21, 8, 2, 30, 6, 11)
DROPS = TINY | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_evaluation_of_ten_rows_gives_ten_outputs_in_order(pp: int, *, tiny: str, run: Run) -> None:
    case = LocalCase(model=TINY, folder=tiny, pp=pp, num_microbatches=4, steps=(LocalStep(ROWS, evaluates=True),))
    result = run(case)
    told = result.steps(pp - 1, "EVALUATE")[0]["rows"]
    batch = batch_of(case, ROWS, range(len(ROWS)), phase=Phase.EVALUATE, step=1)
    model = BertForSequenceClassification.from_pretrained(tiny).eval()
    with torch.no_grad():
        logits = model(
            input_ids=batch.input_ids_BL,
            token_type_ids=batch.token_type_ids_BL,
            attention_mask=batch.attention_mask_BL,
        ).logits
    assert [row["row_id"] for row in told] == list(range(10))
    assert [row["label"] for row in told] == batch.labels.tolist()
    torch.testing.assert_close(torch.tensor([row["outputs"] for row in told]), logits, rtol=1e-5, atol=1e-6)
    assert all(not result.steps(worker, "EVALUATE")[0]["rows"] for worker in range(pp - 1))


@pytest.mark.parametrize("pp", [2, 4])
def test_evaluation_of_another_width_than_the_step_before_gives_the_logits_of_one_process(
    pp: int, *, tiny: str, run: Run
) -> None:
    """H37: narrower and wider, from step to step and within one, training in between; its rate is 0."""
    widths = ((8,) * 4, (16,) * 4, (8,) * 4, (5,) * 4, (8, 16, 8, 5))
    steps = [LocalStep(lengths, evaluates=evaluates) for lengths in widths for evaluates in (False, True)]
    case = LocalCase(model=TINY, folder=tiny, pp=pp, num_microbatches=4, steps=(*steps, *steps), learning_rate=0.0)
    evaluations = run(case).steps(pp - 1, "EVALUATE")
    assert len(evaluations) == 2 * len(widths)
    model = BertForSequenceClassification.from_pretrained(tiny).eval()
    for lengths, evaluation in zip(widths * 2, evaluations, strict=True):
        for row, told in enumerate(evaluation["rows"]):
            batch = batch_of(case, lengths, [row], phase=Phase.EVALUATE, step=evaluation["step"])
            with torch.no_grad():
                (logits,) = model(input_ids=batch.input_ids_BL, token_type_ids=batch.token_type_ids_BL).logits
            torch.testing.assert_close(torch.tensor(told["outputs"]), logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_evaluation_between_steps_changes_nothing(pp: int, schedule: str, *, run: Run) -> None:
    plain = LocalCase(model=DROPS, schedule=schedule, pp=pp, num_microbatches=4, steps=STEPS)
    short, long = LocalStep((3, 3, 2, 4, 5), evaluates=True), LocalStep((32, 31, 4, 6), evaluates=True)
    mixed = replace(plain, steps=(short, STEPS[0], short, long, STEPS[1], long))
    assert_same_bits(run(mixed).merged("final"), run(plain).merged("final"))
    assert_same_bits(run(mixed).merged("moment"), run(plain).merged("moment"))
    assert len(run(mixed).steps(pp - 1, "EVALUATE")) == 4


@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_evaluation_between_backward_and_update_changes_nothing(pp: int, schedule: str, *, run: Run) -> None:
    plain = LocalCase(model=DROPS, schedule=schedule, pp=pp, num_microbatches=4, steps=STEPS)
    mixed = replace(plain, steps=tuple(replace(step, evaluates_inside=(32, 3, 9, 9, 1)) for step in STEPS))
    assert_same_bits(run(mixed).merged("final"), run(plain).merged("final"))
    assert [len(step["rows"]) for step in run(mixed).steps(pp - 1, "EVALUATE")] == [5, 5]
