"""Rows in unequal portions: ragged widths, batches that do not divide, replicas, slices, no rows at all."""

import itertools

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_close, assert_copies_are_equal

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
        (norm,) = {result.steps(worker)[index]["grad_norm"] for worker in range(case.num_workers)}
        assert norm == pytest.approx(expected.norms[index], rel=1e-5)
    sums = [result.steps(dp_rank * case.pp + case.pp - 1) for dp_rank in range(case.dp)]
    for index, step in enumerate(case.steps):
        loss = sum(sum(steps[index]["loss_sums"]) for steps in sums) / len(step.lengths)
        assert loss == pytest.approx(expected.losses[index], abs=1e-6)


@pytest.mark.parametrize(("schedule", "pp"), [("1f1b", 2), ("gpipe", 4), ("naive", 4)])
def test_widths_may_change_at_every_microbatch_and_step(
    schedule: str, pp: int, *, tiny: str, run: Run, train: Train
) -> None:
    """H17, H27 and H37: each microbatch's bytes are those of its own width."""
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


@pytest.mark.parametrize(("schedule", "pp"), [("1f1b", 1), ("1f1b", 2), ("naive", 2), ("gpipe", 4)])
def test_ten_rows_in_four_microbatches_weigh_the_same(
    schedule: str, pp: int, *, tiny: str, run: Run, train: Train
) -> None:
    """H30; the other schedules are in test_parity_schedule_rows."""
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


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("num_microbatches", [1, 4])
def test_one_stage_trains_like_one_process_and_sends_nothing(
    num_microbatches: int, dp: int, *, tiny: str, run: Run, train: Train
) -> None:
    """H65."""
    case = LocalCase(
        model=TINY, folder=tiny, dp=dp, num_microbatches=num_microbatches, steps=EIGHT, records_gradients=True
    )
    assert_trains_like_one_process(case, run, train)
    for worker in run(case).workers:
        assert all(step["sent_bytes"] == step["received_bytes"] == 0 for step in worker["steps"])


@pytest.mark.parametrize("pp", [1, 2])
def test_replicas_run_the_same_steps_where_rows_do_not_divide(pp: int, *, tiny: str, run: Run, train: Train) -> None:
    """H33: nine rows in batches of four; the last has one row, and so one replica has none."""
    steps = (LocalStep((7, 12, 32, 9)), LocalStep((5, 6, 8, 20)), LocalStep((3,)))
    case = LocalCase(model=TINY, folder=tiny, pp=pp, dp=2, num_microbatches=2, steps=steps, records_gradients=True)
    assert_trains_like_one_process(case, run, train)
    result = run(case)
    assert [len(result.steps(worker)) for worker in range(case.num_workers)] == [3] * case.num_workers
    assert_copies_are_equal(result.tensors, "final/")


@pytest.mark.parametrize("dp", [1, 2])
def test_microbatches_without_rows_do_nothing(dp: int, *, tiny: str, run: Run, train: Train) -> None:
    """Nine rows, then one: the second step has empty microbatches, and with dp 2 a replica without any row."""
    steps = (LocalStep((7, 12, 32, 9, 5, 6, 8, 20, 3)), LocalStep((6,)), LocalStep((4, 9, 2)))
    case = LocalCase(model=TINY, folder=tiny, pp=2, dp=dp, num_microbatches=4, steps=steps, records_gradients=True)
    assert case.setting((6,), phase=None, step=2, dp_rank=0).microbatches[1].rows == 0  # type: ignore[arg-type]
    assert_trains_like_one_process(case, run, train)


def test_losses_of_microbatches_belong_to_their_own_rows(tiny: str, run: Run, train: Train) -> None:
    """H35: each microbatch alone as a whole batch gives the loss that the pipeline told for it."""
    lengths = (7, 12, 32, 9)
    case = LocalCase(model=TINY, folder=tiny, pp=4, num_microbatches=4, steps=(LocalStep(lengths),))
    told = run(case).steps(3)[0]["loss_sums"]
    together = train(case).losses[0] * len(lengths)
    alone = [run(LocalCase(model=TINY, folder=tiny, steps=(LocalStep(lengths[: n + 1]),))) for n in range(4)]
    sums = [sum(result.steps(0)[0]["loss_sums"]) for result in alone]
    assert sum(told) == pytest.approx(together, abs=1e-5)
    assert told == pytest.approx([b - a for a, b in itertools.pairwise([0.0, *sums])], abs=1e-5)
    assert len({round(loss, 4) for loss in told}) == 4
