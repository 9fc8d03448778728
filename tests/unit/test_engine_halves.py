"""A stage whose backward comes in two halves against the same stage under plain autograd, and what it keeps."""

import pytest
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch.multiprocessing.reductions import StorageWeakRef

from stage_worker.engine.commands import Shape
from stage_worker.engine.failure import CommandOrderError
from stage_worker.engine.recompute import Recompute
from stage_worker.models.family import Inputs
from tests.unit.engine_harness import Rows, setting
from tests.unit.stage_harness import SHAPES, WHOLE, OneStage, assert_same_bits, live_bytes
from tests.unit.tiny_bert import load_tiny

ORDERS: dict[str, str] = {
    "W right after I": "F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3",
    "all W at the end": "F0 F1 I0 F2 I1 F3 I2 I3 W0 W1 W2 W3",
    "interleaved": "F0 F1 I0 F2 I1 W0 F3 I2 W1 W2 I3 W3",
    "whole and halves": "F0 F1 B0 F2 I1 F3 W1 B2 I3 W3",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("stage", [0, 1, 2], ids=["first", "middle", "last"])
def test_stage_in_halves_gives_the_bits_of_plain_autograd(stage: int, dropout: float, order: str) -> None:
    plain = OneStage(stage=stage, pp=3, splits=False, dropout=dropout, num_hidden_layers=3).run(WHOLE)
    halves = OneStage(stage=stage, pp=3, splits=True, dropout=dropout, num_hidden_layers=3).run(order)
    assert_same_bits(halves, plain)
    assert all(gradient.abs().sum() > 0 for gradient in plain.values())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_stage_in_halves_gives_the_bits_of_the_librarys_own_model(attention: str) -> None:
    model = load_tiny(attention=attention).model
    for microbatch in range(len(SHAPES)):
        batch = Rows().get(setting(shapes=SHAPES), microbatch)
        logits_BC = model(input_ids=batch.input_ids_BL, token_type_ids=batch.token_type_ids_BL).logits
        (F.cross_entropy(logits_BC, batch.labels, reduction="sum") * 0.1).backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert len(expected) == 73
    assert_same_bits(OneStage(stage=0, pp=1, splits=True, attention=attention).run(ORDERS["interleaved"]), expected)


@pytest.mark.parametrize(
    "frozen",
    [("embeddings",), ("embeddings", "query.weight"), ("dense.bias", "value"), ("attention", "dense")],
    ids="+".join,
)
def test_stage_with_frozen_parameters_gives_the_bits_of_plain_autograd(frozen: tuple[str, ...]) -> None:
    """Without the embeddings' gradients the inputs of the first layer need none."""
    plain, halves = (OneStage(stage=0, pp=2, splits=splits) for splits in (False, True))
    for worker in (plain, halves):
        for name, parameter in worker.parameters.items():
            parameter.requires_grad_(not any(part in name for part in frozen))
    expected = plain.run(WHOLE)
    assert 0 < len(expected) < len(plain.parameters)
    assert_same_bits(halves.run(ORDERS["all W at the end"]), expected)


@pytest.mark.parametrize("order", [WHOLE, ORDERS["all W at the end"]], ids=["whole", "halves"])
def test_stage_that_recomputes_in_its_backward_gives_the_bits_of_plain_autograd(order: str) -> None:
    plain = OneStage(stage=1, pp=2, splits=False).run(WHOLE)
    assert_same_bits(OneStage(stage=1, pp=2, splits=True, recompute=Recompute(None)).run(order), plain)


def test_weight_gradients_of_linear_layers_come_with_w_and_all_others_with_i() -> None:
    worker = OneStage(stage=0, pp=2, splits=True)
    for word in ("F0", "I0"):
        worker.obey(word)
    late = {name for name, p in worker.parameters.items() if p.grad is None}
    assert late == {name for name in worker.parameters if "embeddings" not in name and "LayerNorm" not in name}
    worker.obey("W0")
    assert all(p.grad is not None for p in worker.parameters.values())


def test_evaluation_between_the_halves_changes_nothing() -> None:
    plain, mixed = (OneStage(stage=1, pp=2, splits=True) for _ in range(2))
    expected = plain.run("F0 I0 W0")
    batch = Rows().get(setting(shapes=SHAPES), 1)
    for word in ("F0", "I0", "W0"):
        logits_BC = mixed.stage.infer(Inputs(batch, {"mask": None}), mixed.random(1))
        assert not logits_BC.requires_grad
        mixed.obey(word)
    assert_same_bits(mixed.run(""), expected)


def waiting_bytes(shape: Shape, *, hidden: int, intermediate: int) -> int:
    """Return what the linear layers of one BERT layer need for W, in fp32.

    Inputs: of query, key and value together, of both dense layers around the intermediate one, and of that.
    Output gradients: of query, key, value, both dense layers, and the intermediate one.
    """
    inputs = 3 * hidden + intermediate
    output_gradients = 5 * hidden + intermediate
    return 4 * shape.rows * shape.width * (inputs + output_gradients)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_input_gradient_frees_all_but_what_the_weight_gradients_need(dropout: float) -> None:
    """With dropout, whose masks and outputs a forward keeps as well, that is half of it; without, little is over."""
    shapes = (Shape(2, 32), Shape(1, 24))
    changes = {"num_hidden_layers": 3, "intermediate_size": 64}
    worker = OneStage(stage=1, pp=3, splits=True, dropout=dropout, shapes=shapes, **changes)
    first, second = (waiting_bytes(shape, hidden=16, intermediate=64) for shape in shapes)
    after_f0, after_i0, _, after_i1, after_w0, after_w1 = live_bytes(worker, "F0 I0 F1 I1 W0 W1")
    assert after_f0 > after_i0 == first
    assert (after_i1, after_w0, after_w1) == (first + second, second, 0)
    if dropout:
        assert after_i0 / after_f0 < 0.55


@pytest.mark.parametrize("splits", [False, True])
def test_output_that_is_passed_on_is_not_kept_for_its_backward(splits: bool) -> None:
    worker = OneStage(stage=1, pp=3, splits=splits, num_hidden_layers=3)
    output = worker.forward(0)
    storage = StorageWeakRef(output.untyped_storage())
    assert not storage.expired()
    del output
    assert storage.expired()
    worker.obey("B0")


@pytest.mark.parametrize("splits", [False, True])
def test_whole_backward_frees_everything(splits: bool) -> None:
    worker = OneStage(stage=1, pp=3, splits=splits, num_hidden_layers=3)
    after_f0, after_f1, after_b0, after_b1 = live_bytes(worker, "F0 F1 B0 B1")
    assert 0 < after_f0 < after_f1
    assert after_b0 == after_f1 - after_f0
    assert after_b1 == 0


def test_stage_counts_a_microbatch_until_its_weight_gradients_are_done() -> None:
    worker = OneStage(stage=0, pp=1, splits=True)
    counts = []
    for word in ("F0", "F1", "I0", "F2", "W0", "I1", "B2", "W1"):
        worker.obey(word)
        counts.append(worker.stage.in_flight)
    assert counts == [1, 2, 2, 3, 2, 2, 1, 0]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("I0", "microbatch 0 is not in flight on stage 0"),
        ("W0", "microbatch 0 is not in flight on stage 0"),
        ("F0 W0", "the input gradient of microbatch 0 on stage 0 is not computed yet"),
        ("F0 I0 B0", "the input gradient of microbatch 0 on stage 0 is computed already"),
        ("F0 I0 I0", "the input gradient of microbatch 0 on stage 0 is computed already"),
        ("F0 I0 F0", "microbatch 0 is in flight on stage 0 already"),
        ("F0 I0 W0 W0", "microbatch 0 is not in flight on stage 0"),
        ("F0 B0 W0", "microbatch 0 is not in flight on stage 0"),
        ("F0 B0 I0", "microbatch 0 is not in flight on stage 0"),
    ],
)
def test_half_of_a_backward_out_of_order_is_refused(words: str, text: str) -> None:
    worker = OneStage(stage=0, pp=1, splits=True)
    *first, last = words.split()
    for word in first:
        worker.obey(word)
    with pytest.raises(CommandOrderError, match=text):
        worker.obey(last)


def test_stage_that_was_not_told_to_split_refuses_to() -> None:
    worker = OneStage(stage=0, pp=1, splits=False)
    worker.obey("F0")
    with pytest.raises(CommandOrderError, match="stage 0 was not told to split its backward; send it BACKWARD"):
        worker.obey("I0")
