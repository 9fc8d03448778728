"""Layers that compute in bf16 or fp16: what stays fp32, what travels, and that no layout shows in the numbers."""

import functools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it

from benchmarks.local_case import LocalCase, LocalStep, batch_of
from benchmarks.local_run import load_part
from stage_worker.comm_place import Place
from stage_worker.engine.commands import Phase
from stage_worker.engine.loss import loss_sum
from stage_worker.engine.precision import ComputeType
from tests.unit.joined_workers import Outcome, differing, merged, run_joined, tiny_case

SCALE = {
    "initial": 1024.0,
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 2,
    "min": 1.0,
    "max": 2.0**32,
}
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
LENGTHS = ((5, 3, 7, 4, 6, 2, 3, 5), (2, 9, 4, 4, 1, 6, 8, 3), (3, 3, 5, 7, 2, 4, 4, 6))


def low(precision: str, **values: object) -> LocalCase:
    """Return a case in one of the two half-wide types."""
    return tiny_case(precision=precision, loss_scale=SCALE if precision == "fp16" else None, **values)  # type: ignore[arg-type]


def sent(outcomes: list[Outcome]) -> list[tuple[torch.dtype, int]]:
    return [(message.dtype, size) for outcome in outcomes for message, _, size in outcome.transport.sent]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_masters_and_moments_stay_fp32_and_layers_read_a_copy_renewed_after_each_update(precision: str) -> None:
    case = low(precision, pp=2, lengths=LENGTHS, records_gradients=True)
    outcomes = run_joined(case)
    tensors = merged(outcomes, "")
    kinds = {name.split("/")[0] for name in tensors}
    assert kinds == {"gradient", "weight", "final", "moment"}
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    for outcome in outcomes:
        for name, master in outcome.weights().items():
            copy = outcome.model.model.get_parameter(name)
            assert copy.dtype is ComputeType(precision).dtype
            assert torch.equal(copy, master.to(copy.dtype)), name
            assert not torch.equal(copy.float(), master), name
            assert not torch.equal(tensors[f"weight/3/{name}"], tensors[f"weight/2/{name}"])


def test_buffers_keep_their_own_type() -> None:
    (outcome,) = run_joined(low("bf16"))
    buffers = {name: buffer.dtype for name, buffer in outcome.model.model.named_buffers()}
    assert set(buffers.values()) == {torch.int64}
    assert len(buffers) == 2


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_gradients_are_those_of_the_librarys_own_model_in_that_type_added_up_in_fp32(precision: str) -> None:
    """The library's model is converted as a whole; its gradients of each microbatch are added outside of it."""
    case = low(precision, pp=2, num_microbatches=4, records_gradients=True)
    found = merged(run_joined(case), "gradient/1/")
    model = load_part(tiny_case(), Place(worker=0, pp=1, dp=1)).model.to(ComputeType(precision).dtype)
    factor = torch.tensor((SCALE["initial"] if precision == "fp16" else 1.0) / 8)
    expected: dict[str, torch.Tensor] = {}
    (step,) = case.steps
    for rows in case.rows_of(step.lengths, 0):
        batch = batch_of(case, step.lengths, rows, phase=Phase.TRAIN, step=1)
        logits_BC = model(
            input_ids=batch.input_ids_BL,
            token_type_ids=batch.token_type_ids_BL,
            attention_mask=batch.attention_mask_BL,
        ).logits
        assert logits_BC.dtype is ComputeType(precision).dtype
        F.cross_entropy(logits_BC.float(), batch.labels, reduction="sum").backward(factor)
        for name, parameter in model.named_parameters():
            key = f"gradient/1/{name}"
            expected[key] = expected.get(key, 0.0) + parameter.grad.float()
            parameter.grad = None
    assert len(expected) == 73
    assert differing(found, expected) == []


def test_loss_is_computed_in_fp32() -> None:
    torch.manual_seed(0)
    logits_BC, labels = (torch.randn(40, 30) * 4).bfloat16(), torch.randint(0, 30, (40,))
    exact = F.cross_entropy(logits_BC.double(), labels, reduction="sum").item()
    found = loss_sum(logits_BC, labels)
    assert found.dtype is torch.float32
    assert found.item() == pytest.approx(exact, rel=1e-6)
    assert F.cross_entropy(logits_BC, labels, reduction="sum").item() != pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_messages_of_the_compute_type_are_exactly_half_of_fp32(precision: str) -> None:
    half, wide, full = (
        run_joined(low(precision, pp=3, model={"num_hidden_layers": 3})),
        run_joined(low(precision, pp=3, model={"num_hidden_layers": 3}, fp32_boundaries=True)),
        run_joined(tiny_case(pp=3, model={"num_hidden_layers": 3})),
    )
    assert len(sent(half)) == 2 * 2 * 2  # two microbatches over two boundaries, there and back
    assert {dtype for dtype, _ in sent(half)} == {ComputeType(precision).dtype}
    assert {dtype for dtype, _ in sent(wide)} == {torch.float32}
    assert [2 * size for _, size in sent(half)] == [size for _, size in sent(wide)] == [size for _, size in sent(full)]
    for narrow, broad in zip(half, wide, strict=True):
        (one,), (other,) = narrow.result.steps, broad.result.steps
        assert (2 * one.sent_bytes, 2 * one.received_bytes) == (other.sent_bytes, other.received_bytes)
        assert one.sent_bytes == sum(size for _, size in sent([narrow]))


@functools.cache
def final(precision: str, **values: object) -> dict[str, torch.Tensor]:
    """Return weights and moments after three steps with dropout and clipping."""
    outcomes = run_joined(
        low(precision, lengths=LENGTHS, model=DROPOUT, max_grad_norm=0.05, weight_decay=0.1, **values)
    )
    return merged(outcomes, "final/") | merged(outcomes, "moment/")


@pytest.mark.parametrize("fp32_boundaries", [False, True], ids=["compute", "fp32"])
@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_weights_are_the_same_bits_for_every_cut_and_boundary_type(
    precision: str, pp: int, fp32_boundaries: bool
) -> None:
    assert differing(final(precision, pp=pp, fp32_boundaries=fp32_boundaries), final(precision)) == []


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize(
    ("schedule", "num_chunks"), [("gpipe", 1), ("zbh1", 1), ("zbv", 2), ("interleaved", 2)], ids=str
)
def test_weights_are_the_same_bits_for_every_schedule(precision: str, schedule: str, num_chunks: int) -> None:
    """zbh1 and zbv split every backward, with the weight gradients of a microbatch behind the next one's."""
    assert differing(final(precision, pp=2, schedule=schedule, num_chunks=num_chunks), final(precision)) == []


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_evaluation_in_an_open_step_touches_nothing_of_it(precision: str) -> None:
    def run(evaluated: tuple[int, ...]) -> list[Outcome]:
        steps = (LocalStep(LENGTHS[0], evaluates_inside=evaluated), LocalStep(LENGTHS[1]))
        return run_joined(low(precision, pp=2, model=DROPOUT, steps=steps))

    plain, mixed = run(()), run((4, 6, 3, 5))
    assert differing(merged(mixed, "final/"), merged(plain, "final/")) == []
    evaluated, *trained = mixed[1].result.steps
    assert [replace(step, last_seq=0) for step in trained] == [
        replace(step, last_seq=0) for step in plain[1].result.steps
    ]
    assert len(evaluated.rows) == 4
    assert evaluated.loss_scale is None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_weights_after_training_are_near_those_of_fp32(precision: str) -> None:
    """Otherwise equal bits could be equally wrong ones; 8 bits of mantissa make 1 in 256."""
    case = {"pp": 2, "lengths": LENGTHS, "learning_rate": 1e-3}
    found, expected = (
        merged(run_joined(low(precision, **case)), "final/"),
        merged(run_joined(tiny_case(**case)), "final/"),
    )
    initial = load_part(tiny_case(), Place(worker=0, pp=1, dp=1)).held
    moved = sum((expected[f"final/{name}"] - p).double().square().sum() for name, p in initial.items())
    apart = sum((found[name] - expected[name]).double().square().sum() for name in found)
    assert 0 < (apart / moved).sqrt().item() < 0.2
