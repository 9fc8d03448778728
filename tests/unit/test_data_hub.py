"""Tasks from the Hub: columns, labels by name, what the cache holds, and no connection where none is due."""

import csv
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import datasets
import huggingface_hub.constants
import pytest
from datasets import ClassLabel, Features, Value

from dataloader_svc import hub
from dataloader_svc.corpus import check_allowed, find_splits, read_rows, stamps
from dataloader_svc.errors import DataFileError
from dataloader_svc.facts import inspect_data
from dataloader_svc.settings import DataSettings
from dataloader_svc.splits import SplitName
from dataloader_svc.tasks import TASKS
from tests.data_jobs import minilm, real_glue, settings
from tests.hub_folders import Columns, prepare, sst2_columns, sst2_features, write_hub, write_sst2_hub

TRAIN, VALIDATION, TEST = SplitName.TRAIN, SplitName.VALIDATION, SplitName.TEST
INFERENCE = ("entailment", "neutral", "contradiction")
# Columns and label names in the order of their ids, as the card of nyu-mll/glue tells them.
HUB: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "cola": (["sentence"], ["unacceptable", "acceptable"]),
    "sst2": (["sentence"], ["negative", "positive"]),
    "mrpc": (["sentence1", "sentence2"], ["not_equivalent", "equivalent"]),
    "qqp": (["question1", "question2"], ["not_duplicate", "duplicate"]),
    "stsb": (["sentence1", "sentence2"], []),
    "mnli": (["premise", "hypothesis"], INFERENCE),
    "qnli": (["question", "sentence"], ["entailment", "not_entailment"]),
    "rte": (["sentence1", "sentence2"], ["entailment", "not_entailment"]),
    "wnli": (["sentence1", "sentence2"], ["not_entailment", "entailment"]),
}
LABELLED = ("train", "validation")
MNLI_SPLITS = ["train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache that the library uses."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Let every attempt to reach something fail as it does without a network; return what was asked for."""
    addresses: list[object] = []

    def fail(*arguments: object, **_: object) -> NoReturn:
        addresses.append(arguments)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(socket.socket, "connect_ex", fail)
    return addresses


def job(task: str = "sst2", **changes: Any) -> DataSettings:
    values = {"data.task": task, "data.source": "hub", "data.tokenizer": str(minilm())}
    return settings(values | {key.replace("__", "."): value for key, value in changes.items()})


def put(
    cache: Path, splits: Mapping[str, Columns] | Columns, features: Features | None = None, *, task: str = "sst2"
) -> Path:
    """Write a task as the Hub has it and prepare it; train, validation and test are alike where one is given."""
    alike = not any(isinstance(columns, Mapping) for columns in splits.values())
    rows: Any = dict.fromkeys(("train", "validation", "test"), splits) if alike else splits
    with tempfile.TemporaryDirectory() as folder:
        return prepare(write_hub(Path(folder) / "glue", task, rows, features), task, cache)


@pytest.mark.parametrize("task", [*HUB, "ax"])
def test_read_rows_each_task_has_its_texts_and_labels(cache: Path, task: str) -> None:
    texts, names = HUB.get(task, (["premise", "hypothesis"], INFERENCE))
    splits = {"mnli": MNLI_SPLITS, "ax": ["ax"]}.get(task, ["train", "validation", "test"])
    label = ClassLabel(names=list(names)) if names else Value("float32")
    features = Features({**dict.fromkeys(texts, Value("string")), "label": label, "idx": Value("int32")})
    labels: list[float] = [0, 1, len(names) - 1] if names else [3.75, 0.0, 5.0]
    columns = {
        split: {
            **{name: [f'{split} "{name} {row}' for row in range(3)] for name in texts},
            "label": labels if split.startswith(LABELLED) else [-1] * 3,
            "idx": [7, 3, 5],
        }
        for split in splits
    }
    there = {"test": columns["ax"]} if task == "ax" else columns  # the Hub's name of the diagnostic set's only split
    put(cache, there, features, task=task)

    assert list(find_splits(job(task))) == splits
    for split in find_splits(job(task)):
        rows = read_rows(job(task), split)
        assert rows.first == tuple(columns[split][texts[0]])
        assert rows.second == (tuple(columns[split][texts[1]]) if len(texts) == 2 else None)
        assert rows.labels == (tuple(labels) if split.startswith(LABELLED) else None)
        assert rows.num_malformed == 0
    assert TASKS[task].labels == tuple(names)  # so that an id of the Hub is an id here


@pytest.mark.real_glue
def test_read_rows_of_mrpc_are_those_of_its_files(cache: Path) -> None:
    from_files = settings({"data.task": "mrpc", "data.source": str(real_glue()), "data.tokenizer": str(minilm())})
    columns = {}
    for split, name in {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}.items():
        with (real_glue() / "MRPC" / name).open(encoding="utf-8-sig", newline="\n") as file:
            lines = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        columns[split] = {
            "sentence1": [line["#1 String"] for line in lines],
            "sentence2": [line["#2 String"] for line in lines],
            "label": [-1 if split == "test" else int(line["Quality"]) for line in lines],
            "idx": list(range(len(lines))),
        }
    label = ClassLabel(names=["not_equivalent", "equivalent"])
    texts = {"sentence1": Value("string"), "sentence2": Value("string")}
    put(cache, columns, Features({**texts, "label": label, "idx": Value("int32")}), task="mrpc")

    for split in (TRAIN, VALIDATION, TEST):
        assert read_rows(job("mrpc"), split) == read_rows(from_files, split)


def test_inspect_data_digest_changes_with_a_label_alone_and_stays_where_ids_are_only_permuted(cache: Path) -> None:
    def digests(labels: list[int], names: list[str]) -> list[str]:
        put(cache, sst2_columns(["bad", "good", "fine"], labels), sst2_features(names))
        found = [split.digest for split in inspect_data(job()).splits]
        shutil.rmtree(cache)
        return found

    before = digests([0, 1, 1], ["negative", "positive"])

    assert digests([1, 0, 0], ["positive", "negative"]) == before
    assert digests([0, 1, 0], ["negative", "positive"])[:2] != before[:2]


def test_read_rows_permuted_label_ids_mean_what_they_are_called(cache: Path) -> None:
    put(cache, sst2_columns(["bad", "good", "fine"], [1, 0, 0]), sst2_features(["positive", "negative"]))

    assert read_rows(job(), TRAIN).labels == (0, 1, 1)


def test_read_rows_labels_are_the_model_s_ids(tmp_path: Path, cache: Path) -> None:
    put(cache, sst2_columns(["bad", "good"], [0, 1]), sst2_features())
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "POSITIVE", "1": "NEGATIVE"}}))

    assert read_rows(job(model__pretrained=str(tmp_path)), TRAIN).labels == (1, 0)


@pytest.mark.parametrize(
    ("features", "train", "message"),
    [
        (
            None,
            {"text": ["a"], "label": [0]},
            "split train of nyu-mll/glue has no column 'sentence'; it has 'text', 'label'",
        ),
        (
            None,
            {"sentence": ["a"], "idx": [0]},
            "split train of nyu-mll/glue has no column 'label'; it has 'sentence', 'idx'",
        ),
        (None, {"text": ["a"], "idx": [0]}, "has no column 'sentence', 'label'; it has 'text', 'idx'"),
        (None, {"sentence": ["a"], "label": [0]}, r"Value\('int64'\), which has no names in column 'label'"),
        (None, {"sentence": ["a"], "label": ["negative"]}, r"Value\('string'\), which has no names in column 'label'"),
        (
            sst2_features(["bad", "good"]),
            sst2_columns(["a"], [0]),
            "has labels called bad, good in column 'label', need those called negative, positive",
        ),
        (sst2_features(["negative", "positive", "neutral"]), sst2_columns(["a"], [0]), "negative, positive, neutral"),
        (
            Features({"sentence": Value("int64"), "label": ClassLabel(names=["negative", "positive"])}),
            {"sentence": [1], "label": [0]},
            r"has Value\('int64'\) in column 'sentence', need text",
        ),
    ],
)
def test_read_rows_another_form_is_refused_by_name(
    cache: Path, features: Features | None, train: Columns, message: str
) -> None:
    put(cache, train, features)

    with pytest.raises(DataFileError, match=f"task sst2: .*{message}"):
        inspect_data(job())


def test_read_rows_regression_with_classes_is_refused(cache: Path) -> None:
    put(cache, {"sentence1": ["a"], "sentence2": ["b"], "label": [4]}, task="stsb")

    with pytest.raises(DataFileError, match=r"Value\('int64'\) in column 'label', need numbers of a float type"):
        read_rows(job("stsb"), TRAIN)


def test_find_splits_missing_ones_are_refused_by_name(cache: Path) -> None:
    rows = sst2_columns(["a"], [0])
    put(cache, {"train": rows, "dev": rows}, sst2_features())

    with pytest.raises(DataFileError, match="sst2: nyu-mll/glue has no split validation, test; it has dev, train"):
        find_splits(job())


def test_ax_has_nothing_to_train_on(cache: Path) -> None:
    columns = {"premise": ["a"], "hypothesis": ["b"], "label": [-1]}
    features = Features(dict.fromkeys(["premise", "hypothesis"], Value("string")) | {"label": ClassLabel(3)})
    put(cache, {"test": columns}, features, task="ax")

    with pytest.raises(DataFileError, match="task ax has no split to train on"):
        inspect_data(job("ax"))


@pytest.mark.parametrize(
    ("sentences", "labels", "message"),
    [
        (
            ["a", None, "c"],
            [0, 1, 1],
            "row 1 has nothing in column 'sentence', need text; train without such rows by data.malformed_lines: skip",
        ),
        (
            ["a", "b", "c"],
            [0, -1, 1],
            "row 1 has the label -1, which means none, need 0 to 1; train without such rows by data.malformed_lines",
        ),
        (["a", "b", "c"], [0, None, 1], "row 1 has the label None, which means none"),
        ([None, "b", "c"], [0, -1, 1], "row 0 has nothing in .*; rows that do not fit: 2; .*data.malformed_lines"),
    ],
)
def test_read_rows_row_without_text_or_label_is_refused_or_left_out(
    cache: Path, sentences: list[str], labels: list[int], message: str
) -> None:
    put(cache, sst2_columns(sentences, labels), sst2_features())

    with pytest.raises(DataFileError, match=f"task sst2: split train of nyu-mll/glue: {message}"):
        read_rows(job(), TRAIN)
    rows = read_rows(job(data__malformed_lines="skip"), TRAIN)
    assert rows.first[-1] == "c"
    assert (len(rows) + rows.num_malformed, rows.labels[-1:] if rows.labels else None) == (3, (1,))


def test_read_rows_score_without_a_number_is_refused(cache: Path) -> None:
    features = Features({"sentence1": Value("string"), "sentence2": Value("string"), "label": Value("float32")})
    put(cache, {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [2.5, -1.0]}, features, task="stsb")

    with pytest.raises(DataFileError, match=r"row 1 has the label -1\.0, need a number from 0 to 5"):
        read_rows(job("stsb"), VALIDATION)


def test_prepared_data_are_found_and_no_connection_is_attempted(
    tmp_path: Path, cache: Path, asked: list[object]
) -> None:
    prepared = prepare(write_sst2_hub(tmp_path / "glue"), "sst2", cache)
    shutil.rmtree(tmp_path / "glue")

    facts = inspect_data(job())

    assert [(split.name, split.num_rows, split.labelled) for split in facts.splits] == [
        (TRAIN, 12, True),
        (VALIDATION, 5, True),
        (TEST, 3, False),
    ]
    assert find_splits(job())[TRAIN] == (prepared / "glue-train.arrow",)
    check_allowed(job(data__tokenizer=None, data__task="demo"), [])  # no folder of the job, so no root is needed
    assert asked == []


def test_prepared_in_shards_is_read_in_their_order(tmp_path: Path, cache: Path) -> None:
    prepare(write_sst2_hub(tmp_path / "glue", num_rows=10), "sst2", cache, shard_bytes=50)

    assert len(find_splits(job())[TRAIN]) == 3
    rows = read_rows(job(), TRAIN)
    assert rows.labels == (0, 1) * 5
    assert rows.first[:4] == ("plot", "plot was", "plot was never", "plot was never dull")


def test_nothing_prepared_and_offline_is_refused_without_an_attempt(
    monkeypatch: pytest.MonkeyPatch, cache: Path, asked: list[object]
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(DataFileError) as raised:
        inspect_data(job("mrpc"))

    assert str(raised.value) == (
        f"task mrpc: data.source is hub, but the data set nyu-mll/glue is not in {cache}/nyu-mll___glue/mrpc, and "
        "HF_HUB_OFFLINE or HF_DATASETS_OFFLINE forbids to download it; give data.source a folder in the official "
        "GLUE layout, which holds MRPC/train.tsv, or run it once where the Hub can be reached"
    )
    assert asked == []


def test_nothing_prepared_and_no_network_is_refused_soon(cache: Path, asked: list[object]) -> None:
    began = time.monotonic()

    with pytest.raises(DataFileError) as raised:
        inspect_data(job())

    assert time.monotonic() - began < 5  # the library's own retries take 23 s
    assert str(raised.value).startswith(
        f"task sst2: data.source is hub, but the data set nyu-mll/glue is not in {cache}/nyu-mll___glue/sst2, and "
        f"{datasets.config.HF_ENDPOINT} does not give it: ConnectError: "
    )
    assert "Temporary failure in name resolution; give data.source a folder" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert asked


def test_nothing_prepared_and_a_network_that_swallows_everything_is_refused_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(30))
    assert hub.REACH_SECONDS < 20  # 30 in all, and the imports take seconds
    monkeypatch.setattr(hub, "REACH_SECONDS", 0.25)

    with pytest.raises(DataFileError, match=r"sst2: .* did not answer within 0\.25 s; give data\.source a folder"):
        inspect_data(job())
    over.set()


def test_folder_that_a_killed_process_left_half_prepared_is_not_taken(tmp_path: Path, cache: Path) -> None:
    prepared = prepare(write_sst2_hub(tmp_path / "glue"), "sst2", cache)
    shutil.copytree(prepared, prepared.with_name(f"{'f' * 16}.incomplete"))
    (prepared.parent / ("e" * 16)).mkdir()

    assert find_splits(job())[TRAIN] == (prepared / "glue-train.arrow",)


def test_of_two_prepared_ones_the_last_is_taken_and_has_other_stamps(tmp_path: Path, cache: Path) -> None:
    first = prepare(write_sst2_hub(tmp_path / "glue"), "sst2", cache)
    before = stamps(job(), TRAIN)
    assert before[0].path == first / "glue-train.arrow"
    assert stamps(job(), TRAIN) == before
    assert stamps(job(), TEST) != before

    second = prepare(write_sst2_hub(tmp_path / "glue", num_rows=20), "sst2", cache, revision="b" * 40)
    os.utime(first / "dataset_info.json", ns=(1, 1))

    assert stamps(job(), TRAIN)[0].path == second / "glue-train.arrow"
    assert len(read_rows(job(), TRAIN)) == 20


def test_stamps_change_where_a_folder_of_the_cache_is_prepared_again(cache: Path) -> None:
    put(cache, sst2_columns(["a", "b"], [0, 1]), sst2_features())
    before = stamps(job(), TRAIN)

    put(cache, sst2_columns(["a", "c"], [0, 1]), sst2_features())

    assert stamps(job(), TRAIN) != before
    assert read_rows(job(), TRAIN).first == ("a", "c")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "split train of nyu-mll/glue cannot be read from .*: FileNotFoundError"),
        (
            lambda path: os.truncate(path, path.stat().st_size // 2),
            "split train of nyu-mll/glue (cannot be read|has 0)",
        ),
        (lambda path: shutil.copy(path.with_name("glue-test.arrow"), path), "has 3 rows in .*, not 12"),
        (lambda path: path.with_name("dataset_info.json").write_text("{"), "dataset_info.json cannot be read"),
        (lambda path: path.with_name("dataset_info.json").write_text("{}"), "names no data set and no splits"),
    ],
    ids=["missing", "truncated", "other", "no-json", "empty"],
)
def test_damaged_cache_is_refused_with_what_to_remove(tmp_path: Path, cache: Path, harm: Any, message: str) -> None:
    prepared = prepare(write_sst2_hub(tmp_path / "glue"), "sst2", cache)
    harm(prepared / "glue-train.arrow")

    with pytest.raises(DataFileError, match=message) as raised:
        inspect_data(job())

    assert f"{prepared}" in str(raised.value)
    assert str(raised.value).endswith("remove that folder of the cache, and the data are prepared again")
