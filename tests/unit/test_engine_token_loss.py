"""A token-level loss whose value is known by hand: every counted token weighs the same (case H28)."""

import math

import pytest
import torch

from benchmarks.local_case import LocalCase, LocalStep, batch_of
from stage_worker.comm_place import Place
from stage_worker.engine.commands import Phase
from stage_worker.engine.loss import NOT_COUNTED
from stage_worker.models.loaded import LoadedModel
from tests.unit.joined_workers import Tamper, run_joined, tiny_case

LENGTHS = (4, 24)
LOSSES = ((2.0,), (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4))
"""Of each counted token of the two rows; the mean of the second row's is 1."""


def one_and_nine(**layout: int) -> LocalCase:
    """Return a case whose two rows, each a microbatch of its own, have one and nine counted tokens."""
    for seed in range(1000):
        case = tiny_case(objective="masked_lm", steps=(LocalStep(LENGTHS),), seed=seed, **layout)
        labels = batch_of(case, LENGTHS, (0, 1), phase=Phase.TRAIN, step=1).labels
        assert labels is not None
        if (labels != NOT_COUNTED).sum(1).tolist() == [1, 9]:
            return case
    raise AssertionError("no seed gives such rows")


def losses_become_known(case: LocalCase, gradients: dict[int, torch.Tensor]) -> Tamper:
    """Replace the logits by those of ``LOSSES``; record the gradient of each counted token's own logit by row."""

    def tamper(place: Place, model: LoadedModel) -> None:
        if "cls.predictions.bias" not in model.held:
            return

        def change(module: object, arguments: object, logits_BLV: torch.Tensor) -> torch.Tensor:
            row = LENGTHS.index(logits_BLV.shape[1])
            labels = batch_of(case, LENGTHS, (row,), phase=Phase.TRAIN, step=1).labels
            assert labels is not None
            counted = labels != NOT_COUNTED
            known = torch.zeros_like(logits_BLV)
            others = logits_BLV.shape[-1] - 1
            # -log(e^z / (e^z + others)) is the loss where all other logits are 0
            own = torch.tensor([math.log(others / math.expm1(loss)) for loss in LOSSES[row]])
            known[counted, labels[counted]] = own
            made = logits_BLV * 0 + known
            made.register_hook(lambda g: gradients.__setitem__(row, g[counted, labels[counted]]))
            return made

        model.model.cls.register_forward_hook(change)

    return tamper


@pytest.mark.parametrize(
    "layout",
    [{"num_microbatches": 2}, {"num_microbatches": 2, "pp": 2}, {"num_microbatches": 1, "dp": 2}],
    ids=["pp1", "pp2", "dp2"],
)
def test_loss_of_one_token_of_2_and_nine_of_1_is_1_1(layout: dict[str, int]) -> None:
    """The mean of the two means would be 1.5."""
    case, gradients = one_and_nine(**layout), dict[int, torch.Tensor]()
    outcomes = run_joined(case, tamper=losses_become_known(case, gradients))
    assert [outcome.error for outcome in outcomes] == [None] * case.num_workers
    sums = [loss for outcome in outcomes for loss in outcome.result.steps[0].loss_sums]
    assert sums == pytest.approx([2.0, 9.0], rel=1e-6)
    denominators = {
        case.setting(LENGTHS, phase=Phase.TRAIN, step=1, dp_rank=rank).denominator for rank in range(case.dp)
    }
    assert denominators == {10}
    for row, losses in enumerate(LOSSES):  # (p - 1) / 10, where -log p is the loss
        assert gradients[row].tolist() == pytest.approx([math.expm1(-loss) / 10 for loss in losses], rel=1e-5)
