"""Plans that users bring: the export of a built-in one is the same run, and any order that is proved trains right."""

from dataclasses import replace

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from coordinator.schedule.text import to_csv
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.layouts import EACH, ON_FOUR, SIXTEEN, Folders, Layout, plain
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_close, assert_same_bits

pytestmark = pytest.mark.timeout(180)

DESCENDING = """\
0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0
1F0,1F1,1F2,1F3,1B3,1B2,1B1,1B0
"""
DESCENDING_WEIGHTS = """\
0F0,0F1,0F2,0F3,0I0,0I1,0I2,0I3,0W3,0W2,0W1,0W0
1F0,1I0,1F1,1I1,1F2,1I2,1F3,1I3,1W3,1W2,1W1,1W0
"""
BLOCKS = """\
0F0,1F0,0F1,1F1,0F2,1F2,1B0,0B0,0F3,1F3,1B1,0B1,1B2,0B2,1B3,0B3
2F0,3F0,3B0,2B0,2F1,3F1,3B1,2B1,2F2,3F2,3B2,2B2,2F3,3F3,3B3,2B3
"""
"""Two stages side by side on each worker: one boundary of three is crossed."""
BLOCKS_SPLIT = """\
0F0,1F0,0F1,1F1,0F2,1F2,1I0,0I0,0F3,1F3,1W0,1I1,0I1,0W0,1I2,0I2,1I3,0I3,1W1,1W2,1W3,0W1,0W2,0W3
2F0,3F0,3I0,2I0,2F1,3F1,3I1,2I1,3W0,2W0,3W1,2W1,2F2,3F2,3B2,2I2,2F3,3F3,3I3,2W2,2B3,3W3
"""
"""Some backwards whole and some in halves, on the same stages."""


def custom(text: str, *, tiny: str, num_chunks: int = 1) -> LocalCase:
    return LocalCase(
        model=TINY,
        folder=tiny,
        schedule="custom",
        plan_text=text,
        pp=2,
        num_chunks=num_chunks,
        num_microbatches=4,
        steps=SIXTEEN,
        records_gradients=True,
    )


@pytest.mark.parametrize(
    ("whole", "num_slices"), [(True, 1), (False, 1), (True, 2)], ids=["with transfers", "compute only", "slices"]
)
@pytest.mark.parametrize("layout", [Layout("zbv", 1, 4, 2), *EACH, *ON_FOUR], ids=str)
def test_export_of_a_plan_run_as_custom_is_the_same_run(
    layout: Layout, whole: bool, num_slices: int, *, folders: Folders, run: Run
) -> None:
    case = layout.case(folders, SIXTEEN[:2], num_slices=num_slices)
    plan = case.train_plan()
    text = to_csv(plan.workers if whole else plan.orders)
    copy = replace(case, schedule="custom", plan_text=text, group_size=None, warmup=None)
    assert not copy.train_plan().notices
    found, expected = run(copy), run(case)
    assert_same_bits(found.merged("final"), expected.merged("final"))
    assert_same_bits(found.merged("moment"), expected.merged("moment"))
    for worker in range(layout.pp):
        assert found.steps(worker) == expected.steps(worker)  # losses, norms, peaks, bytes


@pytest.mark.parametrize("text", [BLOCKS, BLOCKS_SPLIT], ids=["whole", "split"])
def test_custom_plan_with_neighbours_on_one_worker_trains_like_one_process(
    text: str, *, tiny: str, run: Run, train: Train
) -> None:
    case = custom(text, tiny=tiny, num_chunks=2)
    assert not case.train_plan().notices
    result, expected = run(case), train(case)
    for index in range(len(SIXTEEN)):
        assert_close(result.merged(f"gradient/{index + 1}"), expected.gradients[index], limit=1e-6)
    assert_same_bits(result.merged("final"), run(plain(case)).merged("final"))
    tokens = [4 * sum(max(step.lengths[first : first + 4]) for first in range(0, 16, 4)) for step in SIXTEEN]
    assert [step["sent_bytes"] for step in result.steps(0)] == [16 * 4 * count for count in tokens]


@pytest.mark.parametrize("text", [DESCENDING, DESCENDING_WEIGHTS], ids=["B", "W"])
def test_custom_plan_in_descending_order_is_close_and_says_that_bits_differ(
    text: str, *, tiny: str, run: Run, train: Train
) -> None:
    case = custom(text, tiny=tiny)
    notices = case.train_plan().notices
    assert [notice.split(" runs")[0] for notice in notices] == ["stage 0", "stage 1"]
    assert all("out of order" in notice for notice in notices)
    result, expected, ascending = run(case), train(case), run(plain(case))
    for index in range(len(SIXTEEN)):
        assert_close(result.merged(f"gradient/{index + 1}"), expected.gradients[index], limit=1e-6)
        assert_close(result.merged(f"weight/{index + 1}"), expected.weights[index], limit=1e-6)
    first, other = result.merged("gradient/1"), ascending.merged("gradient/1")
    assert any(not tensor.equal(other[name]) for name, tensor in first.items()), "the order made no difference"


def test_custom_plan_in_two_replicas_trains_like_one_process(tiny: str, run: Run, train: Train) -> None:
    case = replace(custom(BLOCKS_SPLIT, tiny=tiny, num_chunks=2), dp=2)
    result, expected = run(case), train(case)
    for replica in (range(2), range(2, 4)):
        for index in range(len(SIXTEEN)):
            gradients = result.merged(f"gradient/{index + 1}", workers=replica)
            assert_close(gradients, expected.gradients[index], limit=1e-6)
        final = result.merged("final", workers=replica)
        assert_same_bits(final, run(plain(case)).merged("final", workers=replica))


def test_custom_placement_evaluates_as_any_other(tiny: str, run: Run) -> None:
    rows = (LocalStep((9, 3, 14, 7, 21, 8, 2, 30, 6, 11), evaluates=True),)
    case = replace(custom(BLOCKS, tiny=tiny, num_chunks=2), steps=rows)
    told = run(case).steps(1, "EVALUATE")[0]["rows"]
    assert [row["row_id"] for row in told] == list(range(10))
    assert told == run(plain(case)).steps(1, "EVALUATE")[0]["rows"]
