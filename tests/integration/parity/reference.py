"""What every layout is compared with: one process, transformers' own forward, torch's own optimizers, whole batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.local_case import LocalCase, batch_of
from stage_worker.engine.commands import Phase

TINY: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
Tensors = dict[str, torch.Tensor]


@dataclass
class Reference:
    """One entry a training step."""

    losses: list[float] = field(default_factory=list)
    """Mean over the rows of the global batch."""
    norms: list[float] = field(default_factory=list)
    gradients: list[Tensors] = field(default_factory=list)
    """Before clipping."""
    weights: list[Tensors] = field(default_factory=list)
    """After the update."""


def save_tiny_model(folder: Path, config: Mapping[str, Any] = TINY) -> None:
    """Write a small BERT whose every parameter is random, biases and norms too, so that no two can be mistaken."""
    torch.manual_seed(20)
    model = BertForSequenceClassification(BertConfig(**{k: v for k, v in config.items() if k != "model_type"}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)


def train_whole(case: LocalCase) -> Reference:
    """Train the model of ``case.folder`` on the rows of ``case``, each global batch at once."""
    assert case.folder is not None
    model = BertForSequenceClassification.from_pretrained(case.folder, attn_implementation=case.attention)
    model.train()
    named = dict(model.named_parameters())
    plain = [p for name, p in named.items() if "bias" in name or "LayerNorm" in name]
    decayed = [p for name, p in named.items() if "bias" not in name and "LayerNorm" not in name]
    groups = [{"params": decayed, "weight_decay": case.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    kinds = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optimizer = kinds[case.optimizer](groups, lr=case.learning_rate)
    reference = Reference()
    for number, step in enumerate((step for step in case.steps if not step.evaluates), start=1):
        rows = batch_of(case, step.lengths, range(len(step.lengths)), phase=Phase.TRAIN, step=number)
        loss = model(
            input_ids=rows.input_ids_BL,
            token_type_ids=rows.token_type_ids_BL,
            attention_mask=rows.attention_mask_BL,
            labels=rows.labels,
        ).loss
        loss.backward()
        reference.losses.append(loss.item())
        reference.gradients.append({name: p.grad.clone() for name, p in named.items()})
        limit = case.max_grad_norm or math.inf
        reference.norms.append(torch.nn.utils.clip_grad_norm_(list(named.values()), limit).item())
        optimizer.step()
        optimizer.zero_grad()
        reference.weights.append({name: p.detach().clone() for name, p in named.items()})
    return reference


def is_key_bias(name: str) -> bool:
    """Whether exact arithmetic gives the parameter no gradient: softmax ignores what is added to every score."""
    return name.endswith("attention.self.key.bias")


def assert_close(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], *, limit: float) -> None:
    """Compare all tensors but key biases: relative L2 at most ``limit`` over all, 20 times that for each one.

    A single tensor may also differ by 1e-8 in norm, whatever its own size.
    """
    assert found.keys() == expected.keys()
    names = [name for name in expected if not is_key_bias(name)]
    differences = {name: (found[name].double() - expected[name].double()).norm().item() for name in names}
    sizes = {name: expected[name].double().norm().item() for name in names}
    whole = math.hypot(*differences.values()) / math.hypot(*sizes.values())
    assert whole <= limit, f"global relative L2 {whole:.3g}"
    for name in names:
        assert differences[name] <= 20 * limit * sizes[name] + 1e-8, f"{name}: {differences[name]:.3g}"


def assert_same_bits(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Compare all tensors by their bits."""
    assert found.keys() == expected.keys()
    different = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert not different, f"{len(different)} of {len(expected)} differ, for instance {different[:3]}"
