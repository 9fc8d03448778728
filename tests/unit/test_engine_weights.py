"""What layers read, what is trained, and the sums of gradients in between, on a model of plain modules."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from stage_worker.comm_place import Place
from stage_worker.engine.weights import Weights
from stage_worker.models.loaded import LoadedModel
from tests.unit.joined_workers import tiny_case
from tests.unit.shared_model import BIAS, MIX, NUM_LAYERS, SHIFTS, WORDS, load_shared


def weights_of(dtype: torch.dtype) -> tuple[LoadedModel, Weights]:
    model = load_shared(tiny_case(objective="masked_lm"), Place(worker=0, pp=1, dp=1))
    return model, Weights(model, dtype=dtype)


def leaf(model: LoadedModel, weights: Weights, path: str, *, block: int) -> torch.nn.Parameter:
    """Return what a block reads at ``path``."""
    weights.bind(block)
    return model.model.get_parameter(path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_are_added_up_over_microbatches_in_fp32(dtype: torch.dtype) -> None:
    """In bf16 the sum of ones stops at 256, in fp16 at 2048."""
    model, weights = weights_of(dtype)
    own = leaf(model, weights, SHIFTS.format(0), block=1)
    stalled = torch.zeros(8, dtype=dtype)
    for _ in range(2500):
        one = torch.ones(8, dtype=dtype)
        stalled += one
        own.grad = one if own.grad is None else own.grad + one  # as autograd does
        weights.fold(0)
    assert stalled[0] == {torch.float32: 2500, torch.bfloat16: 256, torch.float16: 2048}[dtype]
    (total,) = weights.take(SHIFTS.format(0)).values()
    assert total.dtype is torch.float32
    assert total.unique().tolist() == [2500.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_use_of_a_shared_parameter_has_a_gradient_of_its_own(dtype: torch.dtype) -> None:
    model, weights = weights_of(dtype)
    for block in range(1, NUM_LAYERS + 1):
        leaf(model, weights, MIX, block=block).grad = torch.full((8, 8), float(block), dtype=dtype)
    leaf(model, weights, "head.weight", block=NUM_LAYERS + 1).grad = torch.ones(50, 8, dtype=dtype)
    weights.fold(0)
    found = {block: gradient.unique().tolist() for block, gradient in weights.take(MIX).items()}
    assert found == {block: [float(block)] for block in range(1, NUM_LAYERS + 1)}
    assert weights.take(WORDS).keys() == {NUM_LAYERS + 1}
    assert weights.take(BIAS) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_uses_read_one_memory_that_is_renewed_from_the_master(dtype: torch.dtype) -> None:
    model, weights = weights_of(dtype)
    paths = [(MIX, block) for block in range(1, NUM_LAYERS + 1)]
    leaves = [leaf(model, weights, path, block=block) for path, block in paths]
    assert len({each.data_ptr() for each in leaves}) == 1
    assert len({id(each) for each in leaves}) == NUM_LAYERS
    tied = [leaf(model, weights, WORDS, block=0), leaf(model, weights, "head.weight", block=NUM_LAYERS + 1)]
    assert tied[0] is not tied[1]
    assert tied[0].data_ptr() == tied[1].data_ptr()
    with torch.no_grad():
        for master in weights.masters.values():
            master.fill_(1.0 + 2.0**-12)
    weights.publish()
    assert {each.dtype for each in leaves} == {dtype}
    assert (
        leaves[0].unique().tolist() == tied[1].unique().tolist() == [1.0 + (2.0**-12 if dtype is torch.float32 else 0)]
    )
    assert weights.masters[MIX].unique().tolist() == [1.0 + 2.0**-12]


def test_parameter_of_one_block_in_fp32_is_its_own_leaf() -> None:
    model, weights = weights_of(torch.float32)
    name = SHIFTS.format(2)
    assert leaf(model, weights, name, block=3) is weights.masters[name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_handed_over_once(dtype: torch.dtype) -> None:
    """A worker that kept them would hold the gradients of a whole model twice while it adds over replicas."""
    model, weights = weights_of(dtype)
    for block in (2, 4):
        leaf(model, weights, MIX, block=block).grad = torch.ones(8, 8, dtype=dtype)
    weights.fold(0)
    storages = [StorageWeakRef(gradient.untyped_storage()) for gradient in weights.take(MIX).values()]
    assert len(storages) == 2
    assert all(storage.expired() for storage in storages)
    assert weights.take(MIX) == {}


def test_frozen_parameter_is_copied_and_not_trained() -> None:
    case, place = tiny_case(objective="masked_lm"), Place(worker=0, pp=1, dp=1)
    model = load_shared(case, place, frozen=frozenset({MIX}))
    weights = Weights(model, dtype=torch.bfloat16)
    assert not leaf(model, weights, MIX, block=4).requires_grad
    assert leaf(model, weights, BIAS, block=4).requires_grad


def test_buffers_are_left_in_their_own_type() -> None:
    model = load_shared(tiny_case(objective="masked_lm"), Place(worker=0, pp=1, dp=1))
    model.model.mix.register_buffer("angles", torch.ones(3))
    model.model.mix.register_buffer("positions", torch.arange(3))
    Weights(model, dtype=torch.bfloat16)
    assert model.model.mix.angles.dtype is torch.float32
    assert model.model.mix.positions.dtype is torch.int64
