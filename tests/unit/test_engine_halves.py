"""A stage whose backward comes in two halves against the same stage under plain autograd, and what it keeps."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from stage_worker.engine.commands import Shape
from stage_worker.engine.dropout import DropoutSeeds
from stage_worker.engine.failure import CommandOrderError
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.stage import Stage
from stage_worker.engine.weights import Weights
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel
from tests.unit.engine_harness import Rows, setting
from tests.unit.tiny_bert import CPU, load_tiny

SHAPES = (Shape(2, 5), Shape(3, 4), Shape(1, 7), Shape(4, 3))
ORDERS: dict[str, str] = {
    "W right after I": "F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3",
    "all W at the end": "F0 F1 I0 F2 I1 F3 I2 I3 W0 W1 W2 W3",
    "interleaved": "F0 F1 I0 F2 I1 W0 F3 I2 W1 W2 I3 W3",
    "whole and halves": "F0 F1 B0 F2 I1 F3 W1 B2 I3 W3",
}
WHOLE = "F0 B0 F1 B1 F2 B2 F3 B3"


class Worker:
    """One stage of a tiny BERT with rows, hidden states and gradients of its own for each microbatch."""

    def __init__(
        self,
        *,
        stage: int,
        pp: int,
        splits: bool,
        dropout: float = 0.0,
        shapes: tuple[Shape, ...] = SHAPES,
        recomputes: bool = False,
        **changes: Any,
    ) -> None:
        self.shapes = shapes
        rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        self.model: LoadedModel = load_tiny(stage=stage, pp=pp, splits=splits, **rates, **changes)
        self.model.model.train(dropout > 0)
        seeds = DropoutSeeds(seed=5, dp_rank=0, device=CPU) if dropout else None
        self.stage = Stage(
            self.model,
            Weights(self.model, dtype=torch.float32),
            stage=stage,
            seeds=seeds,
            prepare=lambda batch: Inputs(batch, {"mask": None}),
            recompute=Recompute(None if recomputes else 0),
        )
        self.parameters = self.model.parameters(stage)
        self.input_gradients: dict[int, torch.Tensor | None] = {}

    def forward(self, microbatch: int) -> torch.Tensor:
        batch = Rows().get(setting(shapes=self.shapes), microbatch)
        h_BLD = None if self.stage.is_first else self._random(microbatch)
        return self.stage.forward(
            Inputs(batch, {"mask": None}), h_BLD, step=1, microbatch=microbatch, is_last_microbatch=False
        )

    def obey(self, word: str) -> None:
        """Obey one word such as ``F0``."""
        op, microbatch = word[0], int(word[1:])
        gradient = torch.tensor(0.1) if self.stage.is_last else self._random(microbatch + 10)
        match op:
            case "F":
                self.forward(microbatch)
            case "B":
                self.input_gradients[microbatch] = self.stage.backward(gradient, microbatch=microbatch)
            case "I":
                self.input_gradients[microbatch] = self.stage.input_gradient(gradient, microbatch=microbatch)
            case "W":
                self.stage.weight_gradient(microbatch=microbatch)

    def run(self, words: str) -> dict[str, torch.Tensor]:
        """Obey all words; return the gradients of parameters by name, and of inputs by microbatch."""
        for word in words.split():
            self.obey(word)
        assert self.stage.in_flight == 0
        named = {name: p.grad for name, p in self.parameters.items()}
        named |= {f"input {m}": gradient for m, gradient in self.input_gradients.items()}
        return {name: gradient for name, gradient in named.items() if gradient is not None}

    def _random(self, seed: int) -> torch.Tensor:
        shape = self.shapes[seed % 10]
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape.rows, shape.width, self.model.config.hidden_size, generator=generator)


def assert_same_bits(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, gradient in expected.items() if not torch.equal(found[name], gradient)] == []


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("stage", [0, 1, 2], ids=["first", "middle", "last"])
def test_stage_in_halves_gives_the_bits_of_plain_autograd(stage: int, dropout: float, order: str) -> None:
    plain = Worker(stage=stage, pp=3, splits=False, dropout=dropout, num_hidden_layers=3).run(WHOLE)
    halves = Worker(stage=stage, pp=3, splits=True, dropout=dropout, num_hidden_layers=3).run(order)
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
    assert_same_bits(Worker(stage=0, pp=1, splits=True, attention=attention).run(ORDERS["interleaved"]), expected)


@pytest.mark.parametrize(
    "frozen",
    [("embeddings",), ("embeddings", "query.weight"), ("dense.bias", "value"), ("attention", "dense")],
    ids="+".join,
)
def test_stage_with_frozen_parameters_gives_the_bits_of_plain_autograd(frozen: tuple[str, ...]) -> None:
    """Without the embeddings' gradients the inputs of the first layer need none."""
    plain, halves = (Worker(stage=0, pp=2, splits=splits) for splits in (False, True))
    for worker in (plain, halves):
        for name, parameter in worker.parameters.items():
            parameter.requires_grad_(not any(part in name for part in frozen))
    expected = plain.run(WHOLE)
    assert 0 < len(expected) < len(plain.parameters)
    assert_same_bits(halves.run(ORDERS["all W at the end"]), expected)


@pytest.mark.parametrize("order", [WHOLE, ORDERS["all W at the end"]], ids=["whole", "halves"])
def test_stage_that_recomputes_in_its_backward_gives_the_bits_of_plain_autograd(order: str) -> None:
    plain = Worker(stage=1, pp=2, splits=False).run(WHOLE)
    assert_same_bits(Worker(stage=1, pp=2, splits=True, recomputes=True).run(order), plain)


def test_weight_gradients_of_linear_layers_come_with_w_and_all_others_with_i() -> None:
    worker = Worker(stage=0, pp=2, splits=True)
    for word in ("F0", "I0"):
        worker.obey(word)
    late = {name for name, p in worker.parameters.items() if p.grad is None}
    assert late == {name for name in worker.parameters if "embeddings" not in name and "LayerNorm" not in name}
    worker.obey("W0")
    assert all(p.grad is not None for p in worker.parameters.values())


def test_evaluation_between_the_halves_changes_nothing() -> None:
    plain, mixed = (Worker(stage=1, pp=2, splits=True) for _ in range(2))
    expected = plain.run("F0 I0 W0")
    batch = Rows().get(setting(shapes=SHAPES), 1)
    for word in ("F0", "I0", "W0"):
        logits_BC = mixed.stage.infer(Inputs(batch, {"mask": None}), mixed._random(1))
        assert not logits_BC.requires_grad
        mixed.obey(word)
    assert_same_bits(mixed.run(""), expected)


class Storages(TorchDispatchMode):
    """Writes down every storage that is made while it is on, without keeping any."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self._known:
                storage = tensor.untyped_storage()
                self._made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return out

    def live_bytes(self) -> int:
        return sum(size for reference, size in self._made.values() if not reference.expired())


def live_bytes(worker: Worker, words: str) -> list[int]:
    """Return the bytes alive after each word, besides parameters and their gradients, which are there before."""
    for parameter in worker.parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    live = []
    with Storages([each for p in worker.parameters.values() for each in (p, p.grad)]) as storages:
        for word in words.split():
            worker.obey(word)
            worker.input_gradients.clear()
            live.append(storages.live_bytes())
    return live


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
    worker = Worker(stage=1, pp=3, splits=True, dropout=dropout, shapes=shapes, **changes)
    first, second = (waiting_bytes(shape, hidden=16, intermediate=64) for shape in shapes)
    after_f0, after_i0, _, after_i1, after_w0, after_w1 = live_bytes(worker, "F0 I0 F1 I1 W0 W1")
    assert after_f0 > after_i0 == first
    assert (after_i1, after_w0, after_w1) == (first + second, second, 0)
    if dropout:
        assert after_i0 / after_f0 < 0.55


@pytest.mark.parametrize("splits", [False, True])
def test_output_that_is_passed_on_is_not_kept_for_its_backward(splits: bool) -> None:
    worker = Worker(stage=1, pp=3, splits=splits, num_hidden_layers=3)
    output = worker.forward(0)
    storage = StorageWeakRef(output.untyped_storage())
    assert not storage.expired()
    del output
    assert storage.expired()
    worker.obey("B0")


@pytest.mark.parametrize("splits", [False, True])
def test_whole_backward_frees_everything(splits: bool) -> None:
    worker = Worker(stage=1, pp=3, splits=splits, num_hidden_layers=3)
    after_f0, after_f1, after_b0, after_b1 = live_bytes(worker, "F0 F1 B0 B1")
    assert 0 < after_f0 < after_f1
    assert after_b0 == after_f1 - after_f0
    assert after_b1 == 0


def test_stage_counts_a_microbatch_until_its_weight_gradients_are_done() -> None:
    worker = Worker(stage=0, pp=1, splits=True)
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
    worker = Worker(stage=0, pp=1, splits=True)
    *first, last = words.split()
    for word in first:
        worker.obey(word)
    with pytest.raises(CommandOrderError, match=text):
        worker.obey(last)


def test_stage_that_was_not_told_to_split_refuses_to() -> None:
    worker = Worker(stage=0, pp=1, splits=False)
    worker.obey("F0")
    with pytest.raises(CommandOrderError, match="stage 0 was not told to split its backward; send it BACKWARD"):
        worker.obey("I0")
