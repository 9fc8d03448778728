"""A task of GLUE in one process with nothing but torch and transformers: what a job on the same rows is compared with.

It shares no code with Takt: rows come from the official files, tokens from the model's own tokenizer.

B rows, L positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.glue_rows import TASKS, TableRow, scores

Microbatches = Sequence[Sequence[int]]
"""Rows of the training file of one step, by microbatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training without Takt."""

    model: Path
    """Folder of a pretrained model with the task's head, and of its tokenizer."""
    source: Path
    """Folder in the GLUE layout."""
    learning_rate: float
    weight_decay: float
    warmup_fraction: float
    total_steps: int
    """Optimizer steps that the linear schedule is planned for."""
    task: str = "mrpc"
    max_length: int = 128


class PlainTraining:
    """A model on its way through given batches."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._task = TASKS[training.task]
        self._tokenizer: Any = AutoTokenizer.from_pretrained(training.model)
        self._model: Any = AutoModelForSequenceClassification.from_pretrained(training.model)
        named = dict(self._model.named_parameters())
        plain = [p for name, p in named.items() if name.endswith("bias") or "LayerNorm" in name]
        decayed = [p for name, p in named.items() if not (name.endswith("bias") or "LayerNorm" in name)]
        groups = [{"params": decayed, "weight_decay": training.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=training.learning_rate, fused=True)
        self._train = self._task.rows(training.source, "train")

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

    def outputs(self) -> list[list[float]]:
        """Return the outputs of each development row, one row at a time, so that nothing is padded."""
        self._model.eval()
        with torch.no_grad():
            return [
                self._model(**self._encode([row])).logits[0].tolist()
                for row in self._task.rows(self._training.source, "dev")
            ]

    def evaluate(self) -> dict[str, float]:
        """Return the task's metrics on the development rows."""
        labels = [row[self._task.label] for row in self._task.rows(self._training.source, "dev")]
        return scores(self._training.task, labels, [self._task.prediction(each) for each in self.outputs()])

    def _loss_sum(self, rows: list[TableRow]) -> torch.Tensor:
        outputs_BC = self._model(**self._encode(rows)).logits
        targets = [self._task.target(row) for row in rows]
        if self._task.written:
            return F.cross_entropy(outputs_BC, torch.tensor(targets, dtype=torch.long), reduction="sum")
        return F.mse_loss(outputs_BC[:, 0], torch.tensor(targets), reduction="sum")

    def _encode(self, rows: list[TableRow]) -> Any:
        return self._tokenizer(
            *([row[text] for row in rows] for text in self._task.texts),
            truncation=True,
            max_length=self._training.max_length,
            padding=True,
            return_tensors="pt",
        )


def save_without_dropout(pretrained: Path, folder: Path, *, num_labels: int = 2) -> None:
    """Save a pretrained encoder with a new head of so many outputs and no dropout, and its tokenizer."""
    torch.manual_seed(3)
    AutoModelForSequenceClassification.from_pretrained(
        pretrained, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=num_labels
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(pretrained).save_pretrained(folder)
