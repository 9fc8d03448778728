"""Rows in unequal portions: ragged widths, batches that do not divide, replicas, slices, no rows at all."""

import itertools

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_close, assert_same_bits

pytestmark = pytest.mark.timeout(180)

EIGHT = (LocalStep((7, 12, 32, 9, 5, 6, 8, 20)), LocalStep((8, 8, 16, 16, 8, 8, 5, 5)))
TEN = (LocalStep((9, 3, 14, 7, 21, 8, 2, 30, 6, 11)), LocalStep((5, 5, 5, 5, 5, 5, 5, 5, 5, 6)))


def assert_trains_like_one_process(case: LocalCase, run: Run, train: Train) -> None:
    expected, result = train(case), run(case)
    for index in range(len(case.steps)):
        for dp_rank in range(case.dp):
            replica = range(dp_rank * case.pp, (dp_rank + 1) * case.pp)
            gradients = result.merged(f"gradient/{index + 1}", workers=replica)
            assert_close(gradients, expected.gradients[index], limit=1e-6)
    sums = [result.steps(dp_rank * case.pp + case.pp - 1) for dp_rank in range(case.dp)]
    for index, step in enumerate(case.steps):
        loss = sum(sum(steps[index]["loss_sums"]) for steps in sums) / len(step.lengths)
        assert loss == pytest.approx(expected.losses[index], abs=1e-6)


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
def test_widths_may_change_at_every_microbatch_and_step(
    schedule: str, pp: int, *, tiny: str, run: Run, train: Train
) -> None:
    steps = (
        LocalStep((7, 12, 32, 9)),
        LocalStep((5, 9, 5, 13)),
        LocalStep((8, 8, 8, 8)),
        LocalStep((16, 16, 16, 16)),
        LocalStep((8, 5, 16, 5)),
    )
    case = LocalCase(
        model=TINY, folder=tiny, schedule=schedule, pp=pp, num_microbatches=4, steps=steps, records_gradients=True
    )
    assert_trains_like_one_process(case, run, train)
    hidden_bytes = 16 * 4
    sent = [step["sent_bytes"] for step in run(case).steps(0)]
    assert sent == [sum(step.lengths) * hidden_bytes for step in steps]
    assert [step["received_bytes"] for step in run(case).steps(0)] == sent


@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
def test_ten_rows_in_four_microbatches_weigh_the_same(
    schedule: str, pp: int, *, tiny: str, run: Run, train: Train
) -> None:
    case = LocalCase(
        model=TINY, folder=tiny, schedule=schedule, pp=pp, num_microbatches=4, steps=TEN, records_gradients=True
    )
    assert [len(rows) for rows in case.rows_of(TEN[0].lengths, 0)] == [3, 3, 2, 2]
    assert_trains_like_one_process(case, run, train)


@pytest.mark.parametrize("num_microbatches", [1, 2, 3])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
def test_fewer_microbatches_than_stages_train(
    schedule: str, num_microbatches: int, *, tiny: str, run: Run, train: Train
) -> None:
    """H66; the other schedules are in test_parity_schedules."""
    case = LocalCase(
        model=TINY,
        folder=tiny,
        schedule=schedule,
        pp=4,
        num_microbatches=num_microbatches,
        steps=EIGHT,
        records_gradients=True,
    )
    assert_trains_like_one_process(case, run, train)


@pytest.mark.parametrize("pp", [1, 2])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
@pytest.mark.parametrize("steps", [EIGHT, TEN], ids=["8 rows", "10 rows"])
def test_two_replicas_train_like_one_process_and_stay_equal(
    steps: tuple[LocalStep, ...], schedule: str, pp: int, *, tiny: str, run: Run, train: Train
) -> None:
    """H65 where pp is 1."""
    case = LocalCase(
        model=TINY, folder=tiny, schedule=schedule, pp=pp, dp=2, num_microbatches=2, steps=steps, records_gradients=True
    )
    assert_trains_like_one_process(case, run, train)
    result = run(case)
    assert_same_bits(result.merged("final", workers=range(pp)), result.merged("final", workers=range(pp, 2 * pp)))


@pytest.mark.parametrize("dp", [1, 2])
def test_microbatches_without_rows_do_nothing(dp: int, *, tiny: str, run: Run, train: Train) -> None:
    """Nine rows, then one: the second step has empty microbatches, and with dp 2 a replica without any row."""
    steps = (LocalStep((7, 12, 32, 9, 5, 6, 8, 20, 3)), LocalStep((6,)), LocalStep((4, 9, 2)))
    case = LocalCase(model=TINY, folder=tiny, pp=2, dp=dp, num_microbatches=4, steps=steps, records_gradients=True)
    assert case.setting((6,), phase=None, step=2, dp_rank=0).microbatches[1].rows == 0  # type: ignore[arg-type]
    assert_trains_like_one_process(case, run, train)


@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
def test_two_slices_equal_one_double_batch(schedule: str, pp: int, *, tiny: str, run: Run, train: Train) -> None:
    case = LocalCase(
        model=TINY,
        folder=tiny,
        schedule=schedule,
        pp=pp,
        num_microbatches=2,
        num_slices=2,
        steps=EIGHT,
        records_gradients=True,
    )
    assert_trains_like_one_process(case, run, train)


def test_losses_of_microbatches_belong_to_their_own_rows(tiny: str, run: Run, train: Train) -> None:
    """Each microbatch alone as a whole batch of the reference gives the loss that the pipeline told for it."""
    lengths = (7, 12, 32, 9)
    case = LocalCase(model=TINY, folder=tiny, pp=4, num_microbatches=4, steps=(LocalStep(lengths),))
    told = run(case).steps(3)[0]["loss_sums"]
    together = train(case).losses[0] * len(lengths)
    alone = [run(LocalCase(model=TINY, folder=tiny, steps=(LocalStep(lengths[: n + 1]),))) for n in range(4)]
    sums = [sum(result.steps(0)[0]["loss_sums"]) for result in alone]
    assert sum(told) == pytest.approx(together, abs=1e-5)
    assert told == pytest.approx([b - a for a, b in itertools.pairwise([0.0, *sums])], abs=1e-5)
    assert len({round(loss, 4) for loss in told}) == 4
