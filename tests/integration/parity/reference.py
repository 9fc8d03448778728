"""What every layout is compared with: one process, transformers' own forward, torch's own optimizers, whole batches."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from benchmarks.local_case import LocalCase, batch_of
from stage_worker.engine.commands import Phase
from stage_worker.engine.loss import NOT_COUNTED
from tests.integration.parity.models import AUTO

Tensors = dict[str, torch.Tensor]

_KEY_BIASES = ("attention.self.key.bias", "attention.key.bias", "attention.k_lin.bias")
_FUSED_BIAS = "attn.c_attn.bias"


@dataclass
class Reference:
    """One entry a training step."""

    losses: list[float] = field(default_factory=list)
    """Mean over the rows of the global batch, or over its counted tokens."""
    norms: list[float] = field(default_factory=list)
    gradients: list[Tensors] = field(default_factory=list)
    """Before clipping."""
    weights: list[Tensors] = field(default_factory=list)
    """After the update."""


def train_whole(case: LocalCase, *, dtype: torch.dtype = torch.float32) -> Reference:
    """Train the model of ``case.folder`` on the rows of ``case``, each global batch at once."""
    assert case.folder is not None
    auto = AUTO[case.objective]
    model = auto.from_pretrained(case.folder, attn_implementation=case.attention, dtype=dtype)
    model.train()
    named = dict(model.named_parameters())
    # In these models biases and the weights of norms are what has one dimension.
    plain = [parameter for parameter in named.values() if parameter.dim() == 1]
    decayed = [parameter for parameter in named.values() if parameter.dim() > 1]
    groups = [{"params": decayed, "weight_decay": case.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    kinds = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optimizer = kinds[case.optimizer](groups, lr=case.learning_rate)
    reference = Reference()
    for number, step in enumerate((step for step in case.steps if not step.evaluates), start=1):
        loss = whole_loss(model, case, step.lengths, step=number)
        torch.autograd.backward(loss)
        reference.losses.append(loss.item())
        reference.gradients.append({name: p.grad.clone() for name, p in named.items()})
        limit = case.max_grad_norm or math.inf
        reference.norms.append(torch.nn.utils.clip_grad_norm_(list(named.values()), limit).item())
        optimizer.step()
        optimizer.zero_grad()
        reference.weights.append({name: p.detach().clone() for name, p in named.items()})
    return reference


def whole_loss(model: Any, case: LocalCase, lengths: tuple[int, ...], *, step: int) -> torch.Tensor:
    """Return the mean over all rows of a step, or over all its counted tokens."""
    rows = batch_of(case, lengths, range(len(lengths)), phase=Phase.TRAIN, step=step)
    assert rows.labels is not None
    types = {"token_type_ids": rows.token_type_ids_BL} if takes_types(model) else {}
    logits = model(input_ids=rows.input_ids_BL, attention_mask=rows.attention_mask_BL, **types).logits
    count = int((rows.labels != NOT_COUNTED).sum())
    return (
        cross_entropy(logits.flatten(0, -2), rows.labels.flatten(), ignore_index=NOT_COUNTED, reduction="sum") / count
    )


def takes_types(model: Any) -> bool:
    """Whether a model tells a second sentence from the first."""
    return getattr(model.config, "type_vocab_size", 1) > 1


def without_key_biases(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Leave out what exact arithmetic gives no gradient: softmax ignores what is added to every score of a query.

    Where keys are turned by their position, as in Llama and Qwen2, their biases do count.
    """
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith(_KEY_BIASES)}
    for name, tensor in kept.items():
        if name.endswith(_FUSED_BIAS):
            queries, _, values = tensor.chunk(3)
            kept[name] = torch.cat([queries, values])
    return kept


def assert_close(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], *, limit: float) -> None:
    """Compare all tensors but key biases: relative L2 at most ``limit`` over all, 20 times that for each one.

    A single tensor may also differ by 1e-8 in norm, whatever its own size.
    """
    assert found.keys() == expected.keys()
    found, expected = without_key_biases(found), without_key_biases(expected)
    differences = {name: (found[name].double() - tensor.double()).norm().item() for name, tensor in expected.items()}
    sizes = {name: tensor.double().norm().item() for name, tensor in expected.items()}
    whole = math.hypot(*differences.values()) / math.hypot(*sizes.values())
    assert whole <= limit, f"global relative L2 {whole:.3g}"
    for name, difference in differences.items():
        assert difference <= 20 * limit * sizes[name] + 1e-8, f"{name}: {difference:.3g}"


def assert_same_bits(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Compare all tensors by their bits."""
    assert found.keys() == expected.keys()
    different = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert not different, f"{len(different)} of {len(expected)} differ, for instance {different[:3]}"


def assert_copies_are_equal(tensors: Sequence[Mapping[str, torch.Tensor]], prefix: str) -> None:
    """Compare, by their bits, what several workers hold of one parameter: replicas, and stages that share it."""
    first: Tensors = {}
    for own in tensors:
        for name, tensor in own.items():
            if name.startswith(prefix):
                assert torch.equal(first.setdefault(name, tensor), tensor), f"{name} differs between workers"
