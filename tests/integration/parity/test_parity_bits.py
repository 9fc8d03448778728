"""The same job under any schedule, on any number of workers, with any recomputation: the same bits, dropout included.

New weights, clipped gradients, the same microbatches; see ``matrix.BITS``. Case H54.
"""

from dataclasses import replace

import pytest

from tests.integration.parity.conftest import Run
from tests.integration.parity.matrix import BITS, case_of, name_of, rows_of
from tests.integration.parity.pairwise import Row
from tests.integration.parity.reference import assert_copies_are_equal, assert_same_bits

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("row", rows_of(BITS), ids=name_of)
def test_training_with_dropout_gives_the_same_bits_in_any_layout(row: Row, *, run: Run) -> None:
    case = case_of(row, None, dropout=0.1, max_grad_norm=0.02, learning_rate=1e-3)
    plain = replace(case, schedule="1f1b", plan_text=None, warmup=None, pp=1, num_chunks=1, recompute="none")
    result, expected = run(case), run(plain)
    told, wanted = result.steps(case.last_worker()), expected.steps(0)
    assert [step["loss_sums"] for step in told] == [step["loss_sums"] for step in wanted]
    norms = {tuple(step["grad_norm"] for step in worker["steps"]) for worker in (*result.workers, *expected.workers)}
    assert len(norms) == 1
    assert min(*norms) > 0.02, "nothing was clipped"
    assert_copies_are_equal(result.tensors, "final/")
    assert_same_bits(result.merged("final"), expected.merged("final"))
    assert_same_bits(result.merged("moment"), expected.merged("moment"))


@pytest.mark.parametrize("name", BITS["model"])
def test_dropout_changes_the_losses(name: str, *, run: Run) -> None:
    """Same weights and rows: only the dropout can tell the runs apart, in every microbatch."""
    row: Row = {"model": name, "schedule": "1f1b", "pp": 1, "recompute": "none"}
    dropped, whole = (run(case_of(row, None, dropout=chance)).steps(0)[0] for chance in (0.1, 0.0))
    assert all(a != b for a, b in zip(dropped["loss_sums"], whole["loss_sums"], strict=True))


@pytest.mark.parametrize("recompute", ["full", 1])
def test_dropout_of_a_single_microbatch_survives_recomputation(recompute: int | str, *, run: Run) -> None:
    """H54: pp 2 and one microbatch, gradients too."""
    row: Row = {"model": "bert", "schedule": "1f1b", "pp": 2, "recompute": recompute}
    case = case_of(row, None, dropout=0.1, num_microbatches=1, records_gradients=True)
    result, expected = run(case), run(replace(case, recompute="none"))
    assert [step["loss_sums"] for step in result.steps(1)] == [step["loss_sums"] for step in expected.steps(1)]
    for step in (1, 2):
        assert_same_bits(result.merged(f"gradient/{step}"), expected.merged(f"gradient/{step}"))
