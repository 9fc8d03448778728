"""Tasks whose labels are not two classes in the order of their file, and microbatches regrouped by length."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.integration.services.job_files import WORDS, save_tiny_bert, write_job, write_rows
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.weights import exported

pytestmark = pytest.mark.timeout(240)

INFERENCE = ("entailment", "neutral", "contradiction")
PAIR = ("sentence1", "sentence2")
RATE = 0.1


def pairs(count: int, *, seed: int) -> list[tuple[str, str]]:
    """Return distinct pairs of sentences of 1 to 12 words."""
    draw = random.Random(seed)

    def sentence() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(1, 12)))

    return [(sentence(), sentence()) for _ in range(count)]


def outputs_of(folder: Path, rows: list[tuple[str, str]]) -> torch.Tensor:
    """Return what transformers makes of pairs, one at a time, so that nothing is padded; shape (rows, outputs)."""
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    model.eval()
    with torch.no_grad():
        return torch.cat(
            [model(**tokenizer(*row, return_tensors="pt", return_token_type_ids=True)).logits for row in rows]
        )


def descent(folder: Path, batches: list[list[tuple[str, str]]], ids: dict[tuple[str, str], int]) -> list[float]:
    """Return the loss of each step of gradient descent in this process, on whole batches of pairs."""
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for batch in batches:
        encoded = tokenizer(batch, padding=True, return_tensors="pt", return_token_type_ids=True)
        loss = model(**encoded, labels=torch.tensor([ids[row] for row in batch])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def finish(up: Standing, folder: Path, job: str, changes: dict[str, Any]) -> tuple[Path, dict[str, torch.Tensor]]:
    """Run a job to its success and export it beside; return the job's folder and the weights."""
    up.submit(write_job(folder / f"{job}.json", changes), job)
    status = up.end_of(job)
    assert status["state"] == "SUCCEEDED", status["reason"]
    return up.folder(job), exported(job, state_dir=up.state_dir, out=folder / f"{job}-model")


def test_h02_scores_are_learnt_as_numbers(up: Standing, tmp_path: Path) -> None:
    """First loss and last figures are those of transformers on the folders before and after."""
    model = save_tiny_bert(tmp_path / "model", num_labels=1)
    train, dev = pairs(24, seed=1), pairs(11, seed=2)
    draw = random.Random(3)
    scores = {row: draw.randint(0, 50) / 10 for row in (*train, *dev)}
    for name, rows in (("train", train), ("dev", dev)):
        lines = [(*row, scores[row]) for row in rows]
        write_rows(tmp_path / "glue" / "STS-B" / f"{name}.tsv", (*PAIR, "score"), lines)
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "stsb", "source": str(tmp_path / "glue"), "max_length": 32, "shuffle": False},
        "eval.at_end": True,
    }
    folder, _ = finish(up, tmp_path, "stsb", changes)
    errors = outputs_of(model, train[:16])[:, 0] - torch.tensor([scores[row] for row in train[:16]])
    steps = lines_of(folder / "steps.jsonl")
    assert steps[0]["loss"] == pytest.approx(errors.square().mean().item(), abs=1e-5)
    (record,) = lines_of(folder / "eval.jsonl")
    predicted = outputs_of(tmp_path / "stsb-model", dev)[:, 0]
    expected = [scores[row] for row in dev]
    assert record["loss"] == pytest.approx((predicted - torch.tensor(expected)).square().mean().item(), abs=1e-5)
    assert record["pearson"] == pytest.approx(pearsonr(predicted, expected).statistic, abs=1e-4)
    assert record["spearmanr"] == pytest.approx(spearmanr(predicted, expected).statistic, abs=1e-4)
    assert (record["split"], record["examples"]) == ("validation", 11)


def test_h05_two_validation_splits_under_the_label_ids_of_the_model(up: Standing, tmp_path: Path) -> None:
    """The model has the labels in another order than the data set; names tell them apart, in predictions too.

    Also H22: on two stages, the loss of each step is that of one process.
    """
    order = ("contradiction", "entailment", "neutral")
    names = {"id2label": dict(enumerate(order)), "label2id": {label: index for index, label in enumerate(order)}}
    model = save_tiny_bert(tmp_path / "model", num_labels=3, **names)
    rows = {"train": pairs(30, seed=1), "dev_matched": pairs(21, seed=2), "dev_mismatched": pairs(13, seed=3)}
    label = {row: INFERENCE[index % 3] for each in rows.values() for index, row in enumerate(each)}
    for name, each in rows.items():
        lines = [(*row, label[row]) for row in each]
        write_rows(tmp_path / "glue" / "MNLI" / f"{name}.tsv", (*PAIR, "gold_label"), lines)
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "mnli", "source": str(tmp_path / "glue"), "max_length": 32, "shuffle": False},
        "eval": {"at_end": True, "every_steps": 1, "batch_size": 8},
        "train": {"epochs": 1, "global_batch_size": 10, "optimizer": "sgd", "learning_rate": RATE},
        "train.lr_schedule": "constant",
        "train.weight_decay": 0.0,
    }
    folder, _ = finish(up, tmp_path, "mnli", changes)
    batches = [rows["train"][first : first + 10] for first in (0, 10, 20)]
    losses = descent(model, batches, {row: order.index(label[row]) for row in rows["train"]})
    assert [step["loss"] for step in lines_of(folder / "steps.jsonl")] == pytest.approx(losses, abs=1e-6)
    records = lines_of(folder / "eval.jsonl")
    splits = [("validation_matched", 21), ("validation_mismatched", 13)]
    assert [(r["step"], r["split"], r["examples"]) for r in records] == [
        (s, *split) for s in (1, 2, 3) for split in splits
    ]
    export = AutoModelForSequenceClassification.from_pretrained(tmp_path / "mnli-model")
    assert tuple(export.config.id2label.values()) == order
    for record, each in zip(records[4:], (rows["dev_matched"], rows["dev_mismatched"]), strict=True):
        found = [export.config.id2label[int(i)] for i in outputs_of(tmp_path / "mnli-model", each).argmax(dim=1)]
        right = sum(name == label[row] for name, row in zip(found, each, strict=True))
        assert record["accuracy"] == pytest.approx(right / len(each))

    asked = pairs(12, seed=4)
    lines = [(index, *row) for index, row in enumerate(asked)]
    write_rows(tmp_path / "glue" / "diagnostic" / "diagnostic.tsv", ("index", *PAIR), lines)
    predicted = up.takt("predict", "mnli", "--split", "ax", "--id", "mnli-ax", "--state-dir", up.state_dir)
    assert predicted.code == 0, predicted.err
    names = [export.config.id2label[int(i)] for i in outputs_of(tmp_path / "mnli-model", asked).argmax(dim=1)]
    assert all(name != INFERENCE[order.index(name)] for name in names), "no name has its place in both orders"
    written = (up.folder("mnli-ax") / "predictions-ax.tsv").read_text()
    assert written.splitlines() == ["index\tprediction", *(f"{row}\t{name}" for row, name in enumerate(names))]


def test_regrouped_rows_have_the_gradient_of_the_global_batch(up: Standing, tmp_path: Path) -> None:
    """The same rows in the same steps, on one replica and on two, with less padding; only rounding differs."""
    model = save_tiny_bert(tmp_path / "model")
    train = pairs(60, seed=1)
    write_rows(
        tmp_path / "glue" / "RTE" / "train.tsv",
        (*PAIR, "label"),
        [(*row, ("entailment", "not_entailment")[index % 2]) for index, row in enumerate(train)],
    )
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "rte", "source": str(tmp_path / "glue"), "max_length": 32, "record_rows": True},
        "schedule.num_microbatches": 4,
        "train.epochs": 2,
    }
    balanced = {"data": {**changes["data"], "microbatching": "length_balanced"}}
    jobs = {"in-order": {}, "balanced": balanced, "balanced-dp2": {**balanced, "parallel": {"pp": 2, "dp": 2}}}
    steps, weights = {}, {}
    for job, own in jobs.items():
        folder, weights[job] = finish(up, tmp_path, job, changes | own)
        steps[job] = lines_of(folder / "steps.jsonl")
    plain = steps["in-order"]
    for job in ("balanced", "balanced-dp2"):
        for one, other in zip(plain, steps[job], strict=True):
            assert other["loss"] == pytest.approx(one["loss"], abs=1e-6)
            assert other["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-5)
            assert (other["examples"], other["tokens"]) == (one["examples"], one["tokens"])
            assert other["padded_tokens"] < 0.6 * one["padded_tokens"]
            sorted_rows = [
                sorted(r for rank in step["rows"] for microbatch in rank for r in microbatch) for step in (one, other)
            ]
            assert sorted_rows[0] == sorted_rows[1]
        apart = sum((weights[job][n] - t).double().square().sum() for n, t in weights["in-order"].items())
        whole = sum(t.double().square().sum() for t in weights["in-order"].values())
        assert (apart / whole).sqrt().item() < 1e-5
