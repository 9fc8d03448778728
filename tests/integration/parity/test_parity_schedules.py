"""Every schedule against one process, and bit for bit against 1f1b: three steps each, gradients and weights.

By default a set of layouts that covers every schedule, number of chunks and number of workers with few and many
microbatches; ``make parity-full`` runs all of them with both optimizers.
"""

import pytest

from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.layouts import EACH, ON_FOUR, SIXTEEN, TRAINED, Folders, Layout, plain
from tests.integration.parity.reference import assert_close, assert_same_bits

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize(("layout", "optimizer"), TRAINED, ids=str)
def test_training_under_any_schedule_equals_one_process_and_1f1b(
    layout: Layout, optimizer: str, *, folders: Folders, run: Run, train: Train
) -> None:
    """Also on one worker (H65), and with fewer microbatches than stages (H66)."""
    case = layout.case(folders, optimizer=optimizer, records_gradients=True)
    result, expected, other = run(case), train(case), run(plain(case))
    steps = result.steps(case.last_worker())
    assert len(steps) == len(SIXTEEN)
    for index, step in enumerate(steps):
        gradients, weights = result.merged(f"gradient/{index + 1}"), result.merged(f"weight/{index + 1}")
        assert_close(gradients, expected.gradients[index], limit=1e-6)
        assert_close(weights, expected.weights[index], limit=1e-6)
        assert sum(step["loss_sums"]) / 16 == pytest.approx(expected.losses[index], abs=1e-6)
        assert step["grad_norm"] == pytest.approx(expected.norms[index], rel=1e-5)
        assert_same_bits(gradients, other.merged(f"gradient/{index + 1}"))
    assert_same_bits(result.merged("final"), other.merged("final"))
    assert_same_bits(result.merged("moment"), other.merged("moment"))
    assert [step["loss_sums"] for step in steps] == [step["loss_sums"] for step in other.steps(1)]
    norms = {tuple(step["grad_norm"] for step in worker["steps"]) for worker in (*result.workers, *other.workers)}
    assert len(norms) == 1


@pytest.mark.parametrize("layout", [*EACH, *ON_FOUR], ids=str)
def test_losses_are_told_by_the_worker_of_the_last_stage_only(layout: Layout, *, folders: Folders, run: Run) -> None:
    case = layout.case(folders, SIXTEEN[:2])
    last = 0 if layout.schedule in ("zbv", "dualpipev") else layout.pp - 1
    assert case.last_worker() == last
    told = [[len(step["loss_sums"]) for step in run(case).steps(worker)] for worker in range(layout.pp)]
    assert told == [[layout.num_microbatches if worker == last else 0] * 2 for worker in range(layout.pp)]


@pytest.mark.parametrize("layout", [*EACH, *ON_FOUR, Layout("1f1b", 3, 4)], ids=str)
def test_each_boundary_between_workers_is_crossed_once_a_microbatch_and_direction(
    layout: Layout, *, folders: Folders, run: Run
) -> None:
    """H42: the hidden state of every row crosses once upwards and its gradient once downwards; none within a worker."""
    in_a_v = layout.schedule in ("zbv", "dualpipev")
    boundaries = layout.pp * layout.num_chunks - 1 - (1 if in_a_v else 0)
    # Each microbatch is padded to its longest row; its hidden state has 16 numbers of 4 bytes a token.
    case = layout.case(folders, SIXTEEN[:2])
    widths = [
        sum(len(rows) * max(step.lengths[row] for row in rows) for rows in case.rows_of(step.lengths, 0))
        for step in case.steps
    ]
    result = run(case)
    for what in ("sent_bytes", "received_bytes"):
        crossed = [sum(result.steps(worker)[index][what] for worker in range(layout.pp)) for index in range(2)]
        assert crossed == [2 * boundaries * width * 16 * 4 for width in widths]


@pytest.mark.parametrize("layout", [*EACH, *ON_FOUR], ids=str)
def test_strict_commands_under_any_schedule_give_the_same_bits(layout: Layout, *, folders: Folders, run: Run) -> None:
    single, whole = (run(layout.case(folders, SIXTEEN[:2], strict=strict)) for strict in (True, False))
    assert_same_bits(single.merged("final"), whole.merged("final"))
    assert_same_bits(single.merged("moment"), whole.merged("moment"))
