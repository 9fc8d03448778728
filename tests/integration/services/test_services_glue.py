"""Real input: a pretrained BERT learns five tasks of GLUE, against one process with nothing but torch and transformers.

One job a task trains on two stages, another predicts; each task has a schedule of its own, so that all kinds see real
rows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.glue_rows import TASKS, predictions_in, scores
from benchmarks.plain_training import PlainTraining, Training, save_without_dropout
from tests.data_jobs import minilm, real_glue
from tests.integration.services.job_files import write_job
from tests.integration.services.programs import Program
from tests.integration.services.standing import Standing, lines_of

pytestmark = [pytest.mark.real_glue, pytest.mark.timeout(400)]

END_SECONDS = 300.0
NUM_ROWS = 64
"""Of each file: as many of every class, or the first."""
FP32 = 1e-7
"""Labels that are numbers travel as fp32, which moves a correlation this much at most."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """How a task is trained."""

    schedule: dict[str, Any]
    learning_rate: float
    num_steps: int
    batch: int = 16
    outputs: int = 2
    data: dict[str, Any]
    num_plain_steps: int = 3
    """Steps that a plain loop repeats."""


CASES = {
    "cola": Case(schedule={"name": "interleaved", "num_chunks": 3}, learning_rate=3e-4, num_steps=12, data={}),
    "rte": Case(schedule={"name": "zbh1"}, learning_rate=3e-4, num_steps=16, data={"max_length": 64}),
    "stsb": Case(schedule={"name": "gpipe"}, learning_rate=5e-4, num_steps=12, outputs=1, data={}),
    "mrpc": Case(schedule={"name": "1f1b"}, learning_rate=2e-4, num_steps=20, data={}, num_plain_steps=20),
    "sst2": Case(
        schedule={"name": "zbv", "num_chunks": 2},
        learning_rate=3e-4,
        num_steps=6,
        batch=32,
        data={"microbatching": "length_balanced"},
    ),
}


class Learnt:
    """A task that was learnt, and its development rows as they were predicted."""

    def __init__(self, folder: Path, task: str) -> None:
        self.task = task
        self.case = CASES[task]
        self.source = folder / "rows"
        self.model = folder / f"model-{self.case.outputs}"

    def job(self) -> dict[str, Any]:
        """Return what to change in a job file."""
        case = self.case
        if not self.model.is_dir():
            save_without_dropout(minilm(), self.model, num_labels=case.outputs)
        return {
            "model": {"pretrained": str(self.model)},
            "data": {"task": self.task, "source": str(self.source), "record_rows": True, **case.data},
            "schedule": {"num_microbatches": 4, **case.schedule},
            "train": {
                "max_steps": case.num_steps,
                "global_batch_size": case.batch,
                "learning_rate": case.learning_rate,
                "weight_decay": 0.01,
                "warmup_fraction": 0.1,
            },
            "eval": {"at_end": True},
        }

    def read(self, up: Standing) -> None:
        """Read what the jobs have left."""
        trained, predicted = up.folder(f"real-{self.task}"), up.folder(f"real-{self.task}-dev")
        self.steps = lines_of(trained / "steps.jsonl")
        self.evaluations = [*lines_of(trained / "eval.jsonl"), *lines_of(predicted / "eval.jsonl")]
        self.predictions = predictions_in(predicted / "predictions-validation.tsv")

    @property
    def losses(self) -> list[float]:
        return [step["loss"] for step in self.steps]

    def plain(self) -> PlainTraining:
        """Return the same training without Takt."""
        training = Training(
            model=self.model,
            source=self.source,
            learning_rate=self.case.learning_rate,
            weight_decay=0.01,
            warmup_fraction=0.1,
            total_steps=self.case.num_steps,
            task=self.task,
            max_length=self.case.data.get("max_length", 128),
        )
        return PlainTraining(training)

    def plain_losses(self, plain: PlainTraining, *, whole: bool) -> Iterator[float]:
        """Train on the rows of the job's first steps, in its microbatches or in whole batches."""
        batches = [step["rows"][0] for step in self.steps[: self.case.num_plain_steps]]
        return plain.steps([[[row for rows in batch for row in rows]] for batch in batches] if whole else batches)


def write_few_rows(folder: Path) -> None:
    """Write some lines of each task's files as they are, in their order."""
    for task in TASKS.values():
        (folder / task.folder).mkdir(parents=True)
        for split in ("train", "dev"):
            rows = task.rows(real_glue(), split)
            of_class = [[at for at, row in enumerate(rows) if row[task.label] == label] for label in task.written]
            chosen = sorted(at for each in of_class for at in each[: NUM_ROWS // 2]) or list(range(NUM_ROWS))
            lines = (real_glue() / task.folder / f"{split}.tsv").read_bytes().split(b"\n")
            header = [] if task.columns else lines[:1]
            kept = [*header, *(lines[len(header) + at] for at in chosen)]
            (folder / task.folder / f"{split}.tsv").write_bytes(b"".join(line + b"\n" for line in kept))


@pytest.fixture(scope="module")
def learnt(_four_slots: Standing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Learnt]:
    """Train on each task, then predict its development rows."""
    up, folder = _four_slots, tmp_path_factory.mktemp("glue")
    write_few_rows(folder / "rows")
    found = {task: Learnt(folder, task) for task in CASES}
    for task, each in found.items():
        up.submit(write_job(folder / f"{task}.json", each.job()), f"real-{task}")
    predicting: list[Program] = []
    for task in found:
        up.in_state(f"real-{task}", "SUCCEEDED", limit_seconds=END_SECONDS)
        options = ("--split", "validation", "--id", f"real-{task}-dev", "--state-dir", up.state_dir)
        predicting.append(up.begin("predict", f"real-{task}", *options))
    for task, program in zip(found, predicting, strict=True):
        with program:
            finished = program.end(limit_seconds=END_SECONDS)
        assert finished.code == 0, finished.err
        found[task].read(up)
    return found


@pytest.mark.parametrize("task", CASES)
def test_metrics_are_those_of_scikit_learn_on_the_written_predictions(learnt: dict[str, Learnt], task: str) -> None:
    found = learnt[task]
    labels = [row[TASKS[task].label] for row in TASKS[task].rows(found.source, "dev")]
    expected = scores(task, labels, found.predictions)
    assert len(set(found.predictions)) > 1, "else the metrics say nothing"
    trained, predicted = found.evaluations
    assert (trained["step"], trained["split"], trained["examples"]) == (found.case.num_steps, "validation", NUM_ROWS)
    for record in (trained, predicted):
        assert record.keys() - {"step", "split", "examples", "loss"} == expected.keys()
        assert {name: record[name] for name in expected} == pytest.approx(expected, abs=FP32, rel=0)


@pytest.mark.parametrize("task", [task for task, case in CASES.items() if "microbatching" not in case.data])
def test_steps_on_real_rows_follow_a_plain_loop(learnt: dict[str, Learnt], task: str) -> None:
    """It accumulates the same microbatches in the same order."""
    found, plain = learnt[task], learnt[task].plain()
    expected = list(found.plain_losses(plain, whole=False))
    assert len(found.losses) == found.case.num_steps
    assert found.losses[: len(expected)] == pytest.approx(expected, abs=1e-6, rel=0)
    assert len(set(expected)) == found.case.num_plain_steps
    if len(expected) == found.case.num_steps:
        assert [TASKS[task].prediction(outputs) for outputs in plain.outputs()] == found.predictions


def test_twenty_steps_on_real_rows_follow_whole_batches(learnt: dict[str, Learnt]) -> None:
    found = learnt["mrpc"]
    expected = list(found.plain_losses(found.plain(), whole=True))
    assert len(expected) == 20
    assert found.losses == pytest.approx(expected, abs=1e-5, rel=0)


def test_regrouped_real_rows_follow_whole_batches_with_little_padding(learnt: dict[str, Learnt]) -> None:
    """In order, the same rows would be padded by 45 % at least, whatever the order."""
    found = learnt["sst2"]
    expected = list(found.plain_losses(found.plain(), whole=True))
    assert found.losses[: len(expected)] == pytest.approx(expected, abs=1e-6, rel=0)
    padded, tokens = (sum(step[name] for step in found.steps) for name in ("padded_tokens", "tokens"))
    assert padded / (padded + tokens) < 0.25


def test_first_loss_on_real_rows_is_that_of_transformers(learnt: dict[str, Learnt]) -> None:
    """One row at a time, so that nothing is padded."""
    found = learnt["sst2"]
    model = AutoModelForSequenceClassification.from_pretrained(found.model).eval()
    tokenizer, table = AutoTokenizer.from_pretrained(found.model), TASKS["sst2"].rows(found.source, "train")
    rows = [row for microbatch in found.steps[0]["rows"][0] for row in microbatch]
    losses = []
    for row in (table[number] for number in rows):
        encoded = tokenizer(row["sentence"], truncation=True, max_length=128, return_tensors="pt")
        with torch.no_grad():
            losses.append(model(**encoded, labels=torch.tensor([int(row["label"])])).loss.item())
    assert len(set(rows)) == 32
    assert found.losses[0] == pytest.approx(math.fsum(losses) / 32, abs=1e-5)
