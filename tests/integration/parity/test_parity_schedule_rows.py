"""Every schedule with rows in unequal portions: replicas, ragged batches, no rows at all, slices."""

from dataclasses import replace

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.layouts import EACH, ON_FOUR, Folders, Layout, plain
from tests.integration.parity.reference import assert_close, assert_same_bits

pytestmark = pytest.mark.timeout(180)

TEN = (LocalStep((9, 3, 14, 7, 21, 8, 2, 30, 6, 11)), LocalStep((5, 15, 4, 2, 28, 6, 3, 5, 12, 6)))
FEW = (LocalStep((7, 12, 32, 9, 5, 6, 8, 20, 3)), LocalStep((6,)), LocalStep((4, 9, 2)))
"""Nine rows, then one, then three: with four microbatches the later ones have none."""


def assert_trains_like_one_process_and_1f1b(case: LocalCase, run: Run, train: Train) -> None:
    expected, result, other = train(case), run(case), run(plain(case))
    for index, step in enumerate(case.steps):
        for dp_rank in range(case.dp):
            replica = range(dp_rank * case.pp, (dp_rank + 1) * case.pp)
            gradients = result.merged(f"gradient/{index + 1}", workers=replica)
            assert_close(gradients, expected.gradients[index], limit=1e-6)
        told = [result.steps(case.last_worker(dp_rank=dp_rank))[index]["loss_sums"] for dp_rank in range(case.dp)]
        assert sum(map(sum, told)) / len(step.lengths) == pytest.approx(expected.losses[index], abs=1e-6)
    assert_same_bits(result.merged("final"), other.merged("final"))
    assert_same_bits(result.merged("moment"), other.merged("moment"))


@pytest.mark.parametrize("layout", EACH, ids=str)
def test_ten_rows_in_two_replicas_under_any_schedule_train_like_one_process(
    layout: Layout, *, folders: Folders, run: Run, train: Train
) -> None:
    case = layout.case(folders, TEN, dp=2, records_gradients=True)
    assert_trains_like_one_process_and_1f1b(case, run, train)
    result = run(case)
    assert_same_bits(result.merged("final", workers=range(2)), result.merged("final", workers=range(2, 4)))


@pytest.mark.parametrize("layout", EACH, ids=str)
def test_ten_rows_in_four_microbatches_under_any_schedule_weigh_the_same(
    layout: Layout, *, folders: Folders, run: Run, train: Train
) -> None:
    """H30: microbatches of 3, 3, 2 and 2 rows."""
    case = layout.case(folders, TEN, records_gradients=True)
    assert [len(rows) for rows in case.rows_of(TEN[0].lengths, 0)] == [3, 3, 2, 2]
    assert_trains_like_one_process_and_1f1b(case, run, train)


@pytest.mark.parametrize("layout", [*EACH, *ON_FOUR], ids=str)
def test_microbatches_without_rows_under_any_schedule_do_nothing(
    layout: Layout, *, folders: Folders, run: Run, train: Train
) -> None:
    """H66: more microbatches than rows."""
    case = layout.case(folders, FEW, records_gradients=True)
    assert [len(rows) for rows in case.rows_of(FEW[1].lengths, 0)][:2] == [1, 0]
    assert_trains_like_one_process_and_1f1b(case, run, train)


@pytest.mark.parametrize("layout", EACH, ids=str)
def test_a_replica_without_rows_under_any_schedule_adds_nothing(
    layout: Layout, *, folders: Folders, run: Run, train: Train
) -> None:
    """H33: nine rows, one and three in two replicas; both run every step."""
    case = layout.case(folders, FEW, dp=2, records_gradients=True)
    assert [len(rows) for rows in case.rows_of(FEW[1].lengths, 1)] == [0, 0, 0, 0]
    assert_trains_like_one_process_and_1f1b(case, run, train)


@pytest.mark.parametrize("layout", EACH, ids=str)
def test_slices_under_any_schedule_equal_one_larger_batch(
    layout: Layout, *, folders: Folders, run: Run, train: Train
) -> None:
    """The same job as one of eight microbatches and no slices, to the bit: only the plan differs."""
    case = layout.case(folders, num_slices=2, records_gradients=True)
    assert_trains_like_one_process_and_1f1b(case, run, train)
    unsliced = plain(replace(case, num_slices=1, num_microbatches=8))
    assert_same_bits(run(case).merged("final"), run(unsliced).merged("final"))
