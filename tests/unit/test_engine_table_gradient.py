"""Gradients of embedding tables by rows, against the whole ones of autograd: the same bits, but for rows not read."""

import pytest
import torch
from torch import nn

from stage_worker.comm_place import Place
from stage_worker.engine.table_gradient import bind_tables
from stage_worker.engine.weights import Weights
from stage_worker.models.loaded import LoadedModel
from tests.unit.joined_workers import tiny_case
from tests.unit.shared_model import WORDS, load_shared
from tests.unit.tiny_models import VALUES, load_tiny, rows, run_blocks

LENGTHS = ((7, 3, 9), (4, 4), (12,), (2, 9, 5, 1))
"""Of the rows of each microbatch; shorter ones are padded, so the padding's row is read as well."""


def train(model: LoadedModel) -> dict[str, torch.Tensor | None]:
    """Return what the backwards of all microbatches leave, each with an output gradient of its own."""
    generator = torch.Generator().manual_seed(4)
    for lengths in LENGTHS:
        out = run_blocks(model, rows(lengths))
        out.backward(torch.randn(out.shape, generator=generator))
    return {name: parameter.grad for name, parameter in model.held.items()}


def tables(model: LoadedModel) -> list[str]:
    """Return the names of the weights of a part's embeddings."""
    weights = [module.weight for module in model.model.modules() if isinstance(module, nn.Embedding)]
    return [name for name, parameter in model.held.items() if any(parameter is weight for weight in weights)]


@pytest.mark.parametrize("model_type", VALUES)
def test_gradients_have_the_bits_of_autograd(model_type: str) -> None:
    plain, bound = (load_tiny(model_type, pp=2) for _ in range(2))
    bind_tables(bound)
    expected, found = train(plain), train(bound)
    assert len(tables(bound)) >= 1
    for name, gradient in expected.items():
        assert gradient is not None, name
        other = found[name]
        assert other is not None, name
        assert torch.equal(gradient.view(torch.int32), other.view(torch.int32)), name
    words = tables(bound)[0]
    assert expected[words] is not None
    assert expected[words].any(dim=1).sum() > 20


def test_rows_that_were_not_read_are_left_alone() -> None:
    """Adding a zero to them would turn -0 into 0."""
    model = load_tiny(pp=2)
    bind_tables(model)
    words = model.model.get_parameter("bert.embeddings.word_embeddings.weight")
    words.grad = torch.full_like(words, -0.0)
    batch = rows((7, 3))
    run_blocks(model, batch).sum().backward()
    untouched = torch.signbit(words.grad).all(dim=1) & (words.grad == 0).all(dim=1)
    padding_row = 0
    read = set(batch.input_ids_BL.unique().tolist()) - {padding_row}
    assert {row for row in range(len(words)) if not untouched[row]} - {padding_row} == read
    assert not words.grad[padding_row].any()


def test_frozen_table_gets_no_gradient_and_no_graph() -> None:
    model = load_tiny(pp=2)
    for name in tables(model):
        model.held[name].requires_grad_(False)
    bind_tables(model)
    train(model)
    assert all(model.held[name].grad is None for name in tables(model))
    assert model.held["bert.embeddings.LayerNorm.weight"].grad is not None


def test_evaluation_reads_the_same_and_leaves_nothing() -> None:
    plain, bound = load_tiny(pp=2), load_tiny(pp=2)
    bind_tables(bound)
    with torch.no_grad():
        outputs = [run_blocks(model, rows((5, 8))) for model in (plain, bound)]
    assert torch.equal(*outputs)
    assert not outputs[1].requires_grad


def test_block_adds_to_its_own_leaf_of_a_table_that_the_head_reads_too() -> None:
    model = load_shared(tiny_case(objective="masked_lm"), Place(worker=0, pp=1, dp=1))
    weights = Weights(model, dtype=torch.float32)
    bind_tables(model)
    weights.bind(0)
    ids = torch.tensor([[3, 3, 9]])
    model.model.words(ids).backward(torch.ones(1, 3, 8))
    (block, gradient), *more = weights.take(WORDS).items()
    assert (block, more) == (0, [])
    assert {row: gradient[row].unique().tolist() for row in (3, 9)} == {3: [2.0], 9: [1.0]}
    assert gradient.sum() == 24


def test_embedding_that_does_more_than_look_up_is_left_to_autograd() -> None:
    model = load_tiny(pp=2)
    words = model.model.get_submodule("bert.embeddings.word_embeddings")
    for name, value in (("max_norm", 1.0), ("scale_grad_by_freq", True), ("sparse", True)):
        kept = getattr(words, name)
        setattr(words, name, value)
        bind_tables(model)
        assert "forward" not in vars(words), name
        setattr(words, name, kept)
    bind_tables(model)
    assert "forward" in vars(words)


def test_layers_recomputed_in_the_backward_add_once() -> None:
    plain, bound = load_tiny(pp=2), load_tiny(pp=2)
    bind_tables(bound)
    expected, found = [], []
    for model, gradients in ((plain, expected), (bound, found)):
        batch = rows((7, 3, 9))
        out = torch.utils.checkpoint.checkpoint(run_blocks, model, batch, use_reentrant=False)
        out.sum().backward()
        gradients.extend(model.held[name].grad for name in tables(model))
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
