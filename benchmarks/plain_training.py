"""MRPC in one process with nothing but torch and transformers: what a job on the same rows is compared with.

It shares no code with Takt: rows come from the official files, tokens from the model's own tokenizer.

B rows, L positions.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer

Microbatches = Sequence[Sequence[int]]
"""Rows of the training file of one step, by microbatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training without Takt."""

    model: Path
    """Folder of a pretrained model, with its tokenizer."""
    source: Path
    """Folder in the GLUE layout."""
    learning_rate: float
    weight_decay: float
    warmup_fraction: float
    total_steps: int
    """Optimizer steps that the linear schedule is planned for."""
    max_length: int = 128


class PlainTraining:
    """A model on its way through given batches."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._tokenizer: Any = AutoTokenizer.from_pretrained(training.model)
        self._model: Any = AutoModelForSequenceClassification.from_pretrained(training.model)
        named = dict(self._model.named_parameters())
        plain = [p for name, p in named.items() if name.endswith("bias") or "LayerNorm" in name]
        decayed = [p for name, p in named.items() if not (name.endswith("bias") or "LayerNorm" in name)]
        groups = [{"params": decayed, "weight_decay": training.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=training.learning_rate, fused=True)
        self._train = _table(training.source / "MRPC/train.tsv")

    def steps(self, steps: Sequence[Microbatches]) -> Iterator[float]:
        """Train on each step's rows, one backward a microbatch; yield each step's mean loss over its rows."""
        self._model.train()
        training = self._training
        warmup = int(training.warmup_fraction * training.total_steps)
        for done, microbatches in enumerate(steps):
            count = sum(len(rows) for rows in microbatches)
            total = 0.0
            for rows in microbatches:
                loss = self._loss_sum([self._train[row] for row in rows])
                (loss / count).backward()  # type: ignore[no-untyped-call]
                total += loss.item()
            left = (training.total_steps - done) / (training.total_steps - warmup)
            rate = training.learning_rate * min(done / warmup if warmup else 1.0, left)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._optimizer.step()
            self._optimizer.zero_grad()
            yield total / count

    def evaluate(self) -> dict[str, float]:
        """Return accuracy and F1 on the development rows."""
        self._model.eval()
        rows = _table(self._training.source / "MRPC/dev.tsv")
        with torch.no_grad():
            predicted = [int(self._model(**self._encode([row])).logits.argmax()) for row in rows]
        labels = [int(row["Quality"]) for row in rows]
        return {"accuracy": accuracy_score(labels, predicted), "f1": f1_score(labels, predicted)}

    def _loss_sum(self, rows: list[dict[str, str]]) -> torch.Tensor:
        labels_B = torch.tensor([int(row["Quality"]) for row in rows])
        return F.cross_entropy(self._model(**self._encode(rows)).logits, labels_B, reduction="sum")

    def _encode(self, rows: list[dict[str, str]]) -> Any:
        return self._tokenizer(
            [row["#1 String"] for row in rows],
            [row["#2 String"] for row in rows],
            truncation=True,
            max_length=self._training.max_length,
            padding=True,
            return_tensors="pt",
        )


def save_without_dropout(pretrained: Path, folder: Path) -> None:
    """Save a pretrained encoder with a new head of two labels and no dropout, and its tokenizer."""
    torch.manual_seed(3)
    AutoModelForSequenceClassification.from_pretrained(
        pretrained, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(pretrained).save_pretrained(folder)


def _table(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8-sig", newline="\n") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
