"""Transfers end, whatever their size and order (case H67), and each worker's time is accounted for."""

import itertools

import pytest
import torch

from benchmarks.local_case import LocalCase, LocalStep, batch_of
from stage_worker.engine.commands import Phase
from tests.integration.parity.conftest import Run
from tests.integration.parity.layouts import FULL, Layout
from tests.integration.parity.models import TINY
from tests.integration.parity.reference import assert_same_bits
from tests.integration.parity.threaded import VIEWS, Wide, run_wide

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [2, 3, 4])
def test_small_activations_pass_for_every_number_of_microbatches(schedule: str, pp: int, *, run: Run) -> None:
    for num_microbatches in range(1, 9):
        lengths = (16,) * num_microbatches  # 1 KiB each
        case = LocalCase(
            model=TINY, schedule=schedule, pp=pp, num_microbatches=num_microbatches, steps=(LocalStep(lengths),)
        )
        assert run(case).steps(0)[0]["sent_bytes"] == num_microbatches * 1024


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(
    ("pp", "num_microbatches"),
    [(pp, m) for pp in (2, 3, 4) for m in range(1, 9)] if FULL else [(2, 1), (2, 8), (3, 5), (4, 8)],
)
def test_activations_of_16_mib_pass(schedule: str, pp: int, num_microbatches: int) -> None:
    lengths = tuple(256 for _ in range(num_microbatches))
    case = LocalCase(model={}, schedule=schedule, pp=pp, num_microbatches=num_microbatches, steps=(LocalStep(lengths),))
    results = run_wide(case, hidden_size=16384)
    assert results[0].steps[0].sent_bytes == num_microbatches * 16 * 1024 * 1024
    assert results[0].steps[0].received_bytes == num_microbatches * 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("layout", "boundaries"),
    [
        (Layout("interleaved", 2, 4, 2), 3),
        (Layout("interleaved", 3, 3, 2), 5),
        (Layout("looped_bfs", 2, 3, 2), 3),
        (Layout("zbh1", 3, 4), 2),
        (Layout("zbh2", 3, 5), 2),
        (Layout("zbv", 2, 4, 2), 2),
        (Layout("dualpipev", 2, 4, 2), 2),
        (Layout("1f1b", 3, 5, warmup="eager"), 2),
    ],
    ids=str,
)
def test_activations_of_16_mib_pass_under_any_schedule(layout: Layout, boundaries: int) -> None:
    case = layout.case(None, (LocalStep((256,) * layout.num_microbatches),), model={})
    results = run_wide(case, hidden_size=16384)
    mib = 2 * boundaries * layout.num_microbatches * 16
    assert sum(result.steps[0].sent_bytes for result in results) == mib * 1024 * 1024
    assert sum(result.steps[0].received_bytes for result in results) == mib * 1024 * 1024


@pytest.mark.parametrize(
    "layout",
    [
        Layout("gpipe", 4, 8),
        Layout("1f1b", 4, 8),
        Layout("1f1b", 4, 8, warmup="eager"),
        Layout("interleaved", 2, 8, 2),
        Layout("looped_bfs", 2, 8, 2),
        Layout("zbh1", 4, 8),
        Layout("zbh2", 4, 8),
        Layout("zbv", 2, 8, 2),
        Layout("dualpipev", 2, 8, 2),
    ],
    ids=str,
)
def test_activations_of_1_mib_give_the_same_bits_on_one_worker(layout: Layout) -> None:
    """The layers are those of four stages in both: only the transfers differ."""
    steps = (LocalStep((64, 32, 16, 64, 64, 1, 64, 64)),) * 2
    case = layout.case(None, steps, model={}, optimizer="sgd", learning_rate=0.1)
    results = run_wide(case, hidden_size=4096)
    expected = _wide_by_hand(case, hidden_size=4096)
    found = {name.removeprefix("final/"): t for result in results for name, t in result.tensors.items()}
    assert_same_bits({name: found[name] for name in expected}, expected)


@pytest.mark.parametrize("schedule", ["1f1b", "zbh1"])
def test_views_between_stages_arrive_as_their_values(schedule: str) -> None:
    """H40: outputs and gradients with other strides than their shape's."""
    steps = (LocalStep((64, 32, 16, 64, 64, 2, 64, 64)),) * 2
    layout = Layout(schedule, 2, 4)
    case = layout.case(None, steps, model={}, optimizer="sgd", learning_rate=0.1)
    results = run_wide(case, hidden_size=32, family=VIEWS)
    expected = _wide_by_hand(case, hidden_size=32)
    found = {name.removeprefix("final/"): t for result in results for name, t in result.tensors.items()}
    assert_same_bits({name: found[name] for name in expected}, expected)


def _wide_by_hand(case: LocalCase, *, hidden_size: int) -> dict[str, torch.Tensor]:
    model = Wide(hidden_size=hidden_size, num_layers=case.pp * case.num_chunks)
    decayed = [p for name, p in model.named_parameters() if name != "head.bias"]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": [model.head.bias], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=case.learning_rate, fused=True)
    for number, step in enumerate(case.steps, start=1):
        for rows in case.rows_of(step.lengths, 0):
            batch = batch_of(case, step.lengths, rows, phase=Phase.TRAIN, step=number)
            h_BLD = model.embedding(batch.input_ids_BL[..., None].float())
            for layer in model.layers:
                h_BLD = layer(h_BLD)
            loss = torch.nn.functional.cross_entropy(model.head(h_BLD.mean(1)), batch.labels, reduction="sum")
            loss.backward(torch.tensor(1 / len(step.lengths)))
        optimizer.step()
        optimizer.zero_grad()
    return {name: p.detach() for name, p in model.named_parameters()}


def test_activities_sum_up_to_the_time_of_the_run(run: Run) -> None:
    case = LocalCase(model=TINY, pp=4, num_microbatches=8, steps=(LocalStep((4,) * 8),) * 5)
    for worker, answer in enumerate(run(case).workers):
        activities = answer["activities"]
        assert sum(activities.values()) >= sum(answer["seconds"])
        assert activities["FORWARD"] > 0
        assert activities["BACKWARD"] > 0
        assert activities["STEP"] > 0
        assert (activities["WAIT_ACTIVATION"] > 0) == (worker > 0)
        assert (activities["WAIT_GRADIENT"] > 0) == (worker < 3)


def test_learning_rate_and_norm_are_the_same_on_all_workers(run: Run) -> None:
    """H51: 80 rows, batches of 8, warm-up of two steps, whatever the layout."""
    expected = [0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    for pp, dp, num_slices in [(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1)]:
        case = LocalCase(
            model=TINY,
            pp=pp,
            dp=dp,
            num_slices=num_slices,
            num_microbatches=2,
            steps=(LocalStep((5, 6, 7, 8, 9, 3, 4, 5)),) * 10,
            lr_schedule="linear",
            learning_rate=1e-3,
            warmup_fraction=0.2,
        )
        result = run(case)
        for worker in range(case.num_workers):
            rates = [step["learning_rate"] / 1e-3 for step in result.steps(worker)]
            assert rates == pytest.approx(expected)
        norms = [[step["grad_norm"] for step in result.steps(worker)] for worker in range(case.num_workers)]
        assert all(a == b for a, b in itertools.pairwise(norms))
