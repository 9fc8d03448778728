"""``takt predict``: predictions of a trained model in the order of the file, against transformers on its export."""

import csv
import json
from pathlib import Path

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.integration.services.job_files import WORDS, save_tiny_bert, write_job, write_rows
from tests.integration.services.programs import takt
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.weights import exported

pytestmark = pytest.mark.timeout(240)


def sentences(count: int, *, shift: int) -> list[str]:
    """Return distinct sentences of 2 to 10 words; the first word is one of two, by turns."""
    return [
        " ".join((WORDS[38 + row % 2], *(WORDS[(row * 7 + word + shift) % 38] for word in range(row % 9 + 1))))
        for row in range(count)
    ]


def predicted(folder: Path, texts: list[str]) -> list[int]:
    """Return the classes that transformers predicts, one text at a time."""
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    model.eval()
    with torch.no_grad():
        return [int(model(**tokenizer(text, return_tensors="pt")).logits.argmax()) for text in texts]


def submission(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture(scope="module")
def trained(_four_slots: Standing, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """Train a job named ``trained``; return its export, and the texts of its test and dev rows."""
    tmp_path = tmp_path_factory.mktemp("learner")
    model = save_tiny_bert(tmp_path / "model")
    train, dev, test = (sentences(count, shift=shift) for count, shift in ((40, 0), (23, 3), (5, 5)))
    glue = tmp_path / "glue" / "SST-2"
    write_rows(glue / "train.tsv", ("sentence", "label"), [(text, index % 2) for index, text in enumerate(train)])
    write_rows(glue / "dev.tsv", ("sentence", "label"), [(text, int(index % 3 == 0)) for index, text in enumerate(dev)])
    write_rows(glue / "test.tsv", ("index", "sentence", "label"), [(i, text, -1) for i, text in enumerate(test)])
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "sst2", "source": str(tmp_path / "glue"), "max_length": 32},
        "train": {"epochs": 12, "global_batch_size": 16, "learning_rate": 0.01},
        "eval.batch_size": 8,
    }
    up = _four_slots
    up.submit(write_job(tmp_path / "job.json", changes), "learner")
    assert up.end_of("learner")["state"] == "SUCCEEDED"
    exported("learner", state_dir=up.state_dir, out=tmp_path / "export")
    return tmp_path / "export", test, dev


def test_h01_rows_without_labels_are_predicted_in_the_order_of_the_file(
    up: Standing, trained: tuple[Path, list[str], list[str]]
) -> None:
    folder, test, _ = trained
    options = ("--split", "test", "--id", "learner-test", "--state-dir", up.state_dir, "--output", "json")
    finished = up.takt("predict", "learner", *options)
    assert finished.code == 0, finished.err
    found = submission(up.folder("learner-test") / "predictions-test.tsv")
    assert [row["index"] for row in found] == ["0", "1", "2", "3", "4"]
    assert [int(row["prediction"]) for row in found] == predicted(folder, test)
    (record,) = lines_of(up.folder("learner-test") / "eval.jsonl")
    assert (record["split"], record["examples"], record["loss"]) == ("test", 5, None)
    assert record["reason"] == "the split has no labels"
    document = finished.document
    assert (document["id"], document["job"], document["split"]) == ("learner-test", "learner", "test")
    assert Path(document["file"]) == up.folder("learner-test") / "predictions-test.tsv"
    assert not list(up.folder("learner-test").glob("checkpoints/*"))
    status = json.loads(up.takt("status", "learner-test", "--output", "json").out)
    assert (status["state"], status["reason"]) == ("SUCCEEDED", "all rows are predicted")


def test_labelled_rows_get_metrics_that_are_those_of_what_was_written(
    up: Standing, trained: tuple[Path, list[str], list[str]]
) -> None:
    """Without a coordinator: its services are started for it, and stopped."""
    folder, _, dev = trained
    options = ("--split", "validation", "--id", "learner-dev", "--state-dir", up.state_dir.parent / "elsewhere")
    missing = takt("predict", "learner", *options)
    assert missing.code == 3
    finished = takt("predict", "learner", "--split", "validation", "--id", "learner-dev", "--state-dir", up.state_dir)
    assert finished.code == 0, finished.err
    path = up.folder("learner-dev") / "predictions-validation.tsv"
    assert finished.out == f"{path}: 23 predictions\n"
    written = [int(row["prediction"]) for row in submission(path)]
    assert written == predicted(folder, dev)
    assert len(set(written)) == 2, "else the metrics say nothing"
    (record,) = lines_of(up.folder("learner-dev") / "eval.jsonl")
    labels = [int(index % 3 == 0) for index in range(23)]
    assert record["accuracy"] == pytest.approx(accuracy_score(labels, written))
    assert f1_score(labels, written) > 0


def test_prediction_of_a_split_that_is_not_there_is_refused_naming_those_that_are(
    up: Standing, trained: tuple[Path, list[str], list[str]]
) -> None:
    del trained
    for arguments, told in (
        (("--split", "test_matched"), "predict.split: is test_matched, but task sst2 has train, validation, test"),
        (("--split", "learner-dev"), "is not one of"),
        (("--split", "test", "--step", "99"), "has no checkpoint of step 99"),
    ):
        finished = up.takt("predict", "learner", *arguments, "--state-dir", up.state_dir)
        assert finished.code == (3 if "--step" in arguments else 2)
        assert told in finished.err
