"""Forwards that are done again in the backward: the same gradients, and only the stage's input kept for them."""

import functools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch.multiprocessing.reductions import StorageWeakRef

from benchmarks.local_case import LocalCase, batch_of
from benchmarks.local_run import load_part
from benchmarks.recompute import SETTINGS, Case, Sizes
from stage_worker.comm_place import Place
from stage_worker.engine.commands import Op, Phase, Shape
from stage_worker.engine.recompute import Recompute
from stage_worker.models.family import Inputs
from tests.unit.engine_harness import Harness, Rows, command, setting
from tests.unit.joined_workers import differing, merged, run_joined, tiny_case
from tests.unit.stage_harness import NOTHING, WHOLE, OneStage, assert_same_bits, live_bytes

FULL = Recompute(None)
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
LENGTHS = ((5, 3, 7, 4, 6, 2, 3, 5, 4), (2, 9, 4, 4, 1, 6, 8, 3, 7))


@functools.cache
def trained(**values: object) -> dict[str, torch.Tensor]:
    """Return gradients of two steps, and weights and moments after them."""
    model = {"num_hidden_layers": 6} | (DROPOUT if values.pop("drops") else {})
    case = tiny_case(model=model, lengths=LENGTHS, num_microbatches=3, records_gradients=True, **values)
    return merged(run_joined(case), "")


@pytest.mark.parametrize("drops", [False, True], ids=["", "dropout"])
@pytest.mark.parametrize(
    ("recompute", "schedule"),
    [("full", "1f1b"), ("full", "zbh1"), ("except_last", "gpipe"), (1, "1f1b"), ((2, 0, 1), "zbh1")],
    ids=str,
)
def test_gradients_and_weights_are_those_of_a_job_that_keeps_all(
    recompute: int | str | tuple[int, ...], schedule: str, drops: bool
) -> None:
    """Three stages of two layers: the first with the embeddings, one in the middle, the last with head and loss."""
    kept = trained(pp=1, drops=drops, schedule="1f1b", recompute="none")
    assert differing(trained(pp=3, drops=drops, schedule=schedule, recompute=recompute), kept) == []


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_several_chunks_a_worker_recompute_to_the_same_bits(precision: str) -> None:
    kept, again = (
        trained(pp=3, drops=True, schedule="zbv", num_chunks=2, precision=precision, recompute=recompute)
        for recompute in ("none", "full")
    )
    assert differing(again, kept) == []


@functools.cache
def plain(*, stage: int, dropout: float) -> dict[str, torch.Tensor]:
    return OneStage(stage=stage, pp=3, splits=False, dropout=dropout, num_hidden_layers=6).run(WHOLE)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("stage", [0, 1, 2], ids=["first", "middle", "last"])
@pytest.mark.parametrize("order", [WHOLE, "F0 F1 I0 F2 I1 W0 F3 I2 W1 W2 I3 W3"], ids=["whole", "halves"])
@pytest.mark.parametrize("recompute", [FULL, Recompute(1), Recompute(None, keeps_last=True)], ids=str)
def test_stage_gives_the_bits_of_plain_autograd(recompute: Recompute, order: str, stage: int, dropout: float) -> None:
    one = OneStage(stage=stage, pp=3, splits="I" in order, dropout=dropout, recompute=recompute, num_hidden_layers=6)
    assert_same_bits(one.run(order), plain(stage=stage, dropout=dropout))


def test_evaluation_between_forward_and_backward_does_not_turn_dropout_off_when_the_forward_is_done_again() -> None:
    kept, again = Harness(dropout=0.1), Harness(dropout=0.1, recompute=FULL)
    for harness in (kept, again):
        harness.run(command(Op.FORWARD))
        harness.run(command(Op.FORWARD), ends=True, phase=Phase.EVALUATE)
        assert not harness.model.model.training
        harness.run(command(Op.BACKWARD))
    assert_same_bits(again.gradients(), kept.gradients())
    without = Harness(recompute=FULL)
    without.run(command(Op.FORWARD), command(Op.BACKWARD))
    assert not torch.equal(again.gradients()["classifier.weight"], without.gradients()["classifier.weight"])


SHAPE = Shape(3, 24)
HIDDEN_BYTES = SHAPE.rows * SHAPE.width * 16 * 4
ROWS_BYTES = 3 * SHAPE.rows * SHAPE.width * 8 + SHAPE.rows * 8
"""Ids, token types and mask, and labels."""


def kept_bytes(recompute: Recompute, *, stage: int, num_layers: int = 2, dropout: float = 0.1) -> int:
    """Return what one microbatch leaves alive between its forward and its backward, on a stage of three."""
    one = OneStage(
        stage=stage,
        pp=3,
        splits=False,
        dropout=dropout,
        shapes=(SHAPE, SHAPE),
        recompute=recompute,
        num_hidden_layers=3 * num_layers,
    )
    after_f0, after_b0 = live_bytes(one, "F0 B0")
    assert after_b0 == 0
    return after_f0


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    ("stage", "inputs"), [(0, ROWS_BYTES), (1, HIDDEN_BYTES + ROWS_BYTES), (2, HIDDEN_BYTES + ROWS_BYTES)], ids=str
)
def test_stage_that_recomputes_all_keeps_its_input_and_nothing_else(stage: int, inputs: int, dropout: float) -> None:
    assert kept_bytes(FULL, stage=stage, dropout=dropout) == inputs
    assert kept_bytes(NOTHING, stage=stage, dropout=dropout) > 12 * inputs


def test_layers_that_are_not_recomputed_keep_what_they_always_keep() -> None:
    """Of two layers the first is done again: left are the stage's input, and the second's own with its input."""
    one_layer = kept_bytes(NOTHING, stage=1, num_layers=1)
    assert kept_bytes(Recompute(1), stage=1) == HIDDEN_BYTES + ROWS_BYTES + one_layer
    assert kept_bytes(Recompute(1), stage=0) == ROWS_BYTES + one_layer  # the embeddings are done again with it
    assert kept_bytes(Recompute(2), stage=1) == kept_bytes(Recompute(9), stage=1) == kept_bytes(FULL, stage=1)


def test_mask_goes_after_the_forward_and_is_made_once_more_in_the_backward() -> None:
    one = OneStage(stage=1, pp=3, splits=False, shapes=(SHAPE, SHAPE), recompute=FULL, num_hidden_layers=6)
    batch = Rows().get(setting(shapes=one.shapes), 0)
    made: list[StorageWeakRef] = []

    def prepare() -> Inputs:
        mask = torch.ones(SHAPE.rows, 1, SHAPE.width, SHAPE.width, dtype=torch.bool).tril()
        made.append(StorageWeakRef(mask.untyped_storage()))
        return Inputs(batch, {"mask": mask})

    one.stage.forward(prepare(), one.random(0), prepare=prepare, step=1, microbatch=0, is_last_microbatch=False)
    assert [mask.expired() for mask in made] == [True]
    one.obey("B0")
    assert [mask.expired() for mask in made] == [True, True]


def test_microbatches_that_wait_keep_one_input_each() -> None:
    one = OneStage(stage=1, pp=3, splits=False, shapes=(SHAPE,) * 4, recompute=FULL, num_hidden_layers=6)
    each = HIDDEN_BYTES + ROWS_BYTES
    assert live_bytes(one, "F0 F1 F2 B0 F3 B1 B2 B3") == [
        each,
        2 * each,
        3 * each,
        2 * each,
        3 * each,
        2 * each,
        each,
        0,
    ]


def test_last_microbatch_of_a_step_is_kept_where_the_setting_says_so() -> None:
    one = OneStage(
        stage=1,
        pp=3,
        splits=False,
        shapes=(SHAPE, SHAPE),
        recompute=Recompute(None, keeps_last=True),
        num_hidden_layers=6,
    )
    after_f0, after_f1, after_b1, after_b0 = live_bytes(one, "F0 F1 B1 B0")
    assert (after_f0, after_b1, after_b0) == (HIDDEN_BYTES + ROWS_BYTES, HIDDEN_BYTES + ROWS_BYTES, 0)
    assert after_f1 - after_f0 == kept_bytes(NOTHING, stage=1, dropout=0.0)


def test_what_waits_for_the_weight_gradients_is_the_same_after_a_recomputed_forward() -> None:
    stages = [
        OneStage(stage=1, pp=3, splits=True, shapes=(SHAPE,), recompute=recompute, num_hidden_layers=6)
        for recompute in (NOTHING, FULL)
    ]
    (_, kept, _), (_, again, _) = (live_bytes(one, "F0 I0 W0") for one in stages)
    assert again == kept > 0


@pytest.mark.parametrize("setting", ["none", "half", "full"])
def test_eight_layers_and_microbatches_under_gpipe_keep_a_third_for_at_most_one_more_forward(setting: str) -> None:
    """The benchmark of recomputation, small; its times are too noisy for a test, so layers are counted."""
    sizes = Sizes(layers=8, hidden_size=64, rows=2, width=32, microbatches=8)
    case, plain = Case(sizes, SETTINGS[setting]), Case(sizes, SETTINGS["none"])
    calls = []
    for layer in case.model.model.bert.encoder.layer:
        layer.register_forward_pre_hook(lambda module, arguments: calls.append(module))
    kept = case.kept_bytes()
    again = {"none": 0, "half": 4, "full": 8}[setting]
    assert len(calls) == 8 * (8 + again)
    assert kept <= plain.kept_bytes() * {"none": 1.0, "half": 0.6, "full": 1 / 3}[setting]


FROZEN = 2
"""Layers that are not trained; the embeddings are not either."""


def frozen_case(**values: object) -> LocalCase:
    return tiny_case(frozen_layers=FROZEN, records_gradients=True, lengths=LENGTHS, weight_decay=0.1, **values)


@functools.cache
def frozen_reference() -> dict[str, torch.Tensor]:
    """Return the gradients of the first step from the library's own model with its first part frozen."""
    case = frozen_case()
    model = load_part(tiny_case(), Place(worker=0, pp=1, dp=1)).model
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(
            not name.startswith(("bert.embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1"))
        )
    lengths = case.steps[0].lengths
    for rows in case.rows_of(lengths, 0):
        batch = batch_of(case, lengths, rows, phase=Phase.TRAIN, step=1)
        assert batch.labels is not None
        logits_BC = model(
            input_ids=batch.input_ids_BL,
            token_type_ids=batch.token_type_ids_BL,
            attention_mask=batch.attention_mask_BL,
        ).logits
        F.cross_entropy(logits_BC, batch.labels, reduction="sum").backward(torch.tensor(1 / 9))  # type: ignore[no-untyped-call]
    return {f"gradient/1/{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize(
    ("recompute", "schedule"),
    [("none", "1f1b"), ("full", "1f1b"), (1, "1f1b"), ("except_last", "gpipe"), ("full", "zbh1")],
    ids=str,
)
def test_frozen_input_part_leaves_the_gradients_of_the_rest_alone(pp: int, schedule: str, recompute: int | str) -> None:
    """At pp 2 the first stage has nothing to train, at pp 4 the first two have not."""
    case = frozen_case(pp=pp, schedule=schedule, recompute=recompute)
    outcomes = run_joined(case)
    found = merged(outcomes, "gradient/1/")
    assert all(gradient.abs().sum() > 0 for gradient in found.values())
    assert differing(found, frozen_reference()) == []
    initial = load_part(tiny_case(), Place(worker=0, pp=1, dp=1)).held
    final = merged(outcomes, "final/")
    moved = {name for name, parameter in initial.items() if not torch.equal(final[f"final/{name}"], parameter)}
    assert moved == {name.removeprefix("gradient/1/") for name in found}
    for outcome in outcomes:
        if all(not master.requires_grad for master in outcome.model.held.values()):
            assert [name for name in outcome.result.tensors if name.startswith("moment")] == []
        assert [step.skipped for step in outcome.result.steps] == [False, False]
