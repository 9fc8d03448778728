"""Every GLUE task in the official layout: columns by name, labels by the words of its files, in the model's order."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dataloader_svc.corpus import read_rows
from dataloader_svc.errors import DataFileError, SpecError
from dataloader_svc.facts import inspect_data
from dataloader_svc.labels import labels_of
from dataloader_svc.settings import DataSettings
from dataloader_svc.splits import SplitName
from dataloader_svc.tasks import MNLI, MRPC, STSB, TASKS
from tests.data_jobs import minilm, settings

INFERENCE = ("entailment", "neutral", "contradiction")


def job(source: Path, task: str, changes: dict[str, object] | None = None) -> DataSettings:
    values = {"data.task": task, "data.source": str(source), "data.tokenizer": str(minilm())}
    return settings(values | (changes or {}))


def write(path: Path, *lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(line) + "\n" for line in lines))


# Headers and words as the official download has them.
MNLI_HEADER = (
    *("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse"),
    *("sentence2_parse", "sentence1", "sentence2"),
)


def mnli_line(index: int, first: str, second: str, *labels: str) -> tuple[str, ...]:
    return (str(index), "1", "1e", "fiction", "( a )", "( b )", "(ROOT a)", "(ROOT b)", first, second, *labels)


TRAINING = [
    (
        "cola",
        "CoLA/train.tsv",
        [("gj04", "1", "", "He left."), ("gj04", "0", "*", 'Him "left.')],
        ("He left.", 'Him "left.'),
        None,
        (1, 0),
    ),
    (
        "qqp",
        "QQP/train.tsv",
        [
            ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
            ("13", "1", "2", "Why?", "Why not?", "0"),
            ("7", "3", "4", "How?", "In what way?", "1"),
        ],
        ("Why?", "How?"),
        ("Why not?", "In what way?"),
        (0, 1),
    ),
    (
        "qnli",
        "QNLI/train.tsv",
        [
            ("index", "question", "sentence", "label"),
            ("0", "Who?", "It was me.", "entailment"),
            ("1", "When?", "It was me.", "not_entailment"),
        ],
        ("Who?", "When?"),
        ("It was me.", "It was me."),
        (0, 1),
    ),
    (
        "rte",
        "RTE/train.tsv",
        [
            ("index", "sentence1", "sentence2", "label"),
            ("0", "a", "b", "not_entailment"),
            ("1", "c", "d", "entailment"),
        ],
        ("a", "c"),
        ("b", "d"),
        (1, 0),
    ),
    (
        "wnli",
        "WNLI/train.tsv",
        [("index", "sentence1", "sentence2", "label"), ("0", "a", "b", "1"), ("1", "c", "d", "0")],
        ("a", "c"),
        ("b", "d"),
        (1, 0),
    ),
    (
        "mnli",
        "MNLI/train.tsv",
        [
            (*MNLI_HEADER, "label1", "gold_label"),
            mnli_line(0, "a", "b", "neutral", "contradiction"),
            mnli_line(1, "c", "d", "entailment", "entailment"),
            mnli_line(2, "e", "f", "entailment", "neutral"),
        ],
        ("a", "c", "e"),
        ("b", "d", "f"),
        (2, 0, 1),
    ),
    (
        "stsb",
        "STS-B/train.tsv",
        [
            (
                "index",
                "genre",
                "filename",
                "year",
                "old_index",
                "source1",
                "source2",
                "sentence1",
                "sentence2",
                "score",
            ),
            ("0", "main-news", "f", "2012", "1", "none", "none", "a", "b", "2.500"),
            ("1", "main-news", "f", "2012", "2", "none", "none", "c", "d", "5"),
        ],
        ("a", "c"),
        ("b", "d"),
        (2.5, 5.0),
    ),
    (
        "mrpc",
        "MRPC/train.tsv",
        [
            ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            ("1", "702876", "702977", "a", "b"),
            ("0", "2108705", "2108831", "c", "d"),
        ],
        ("a", "c"),
        ("b", "d"),
        (1, 0),
    ),
    (
        "sst2",
        "SST-2/train.tsv",
        [("sentence", "label"), ("fine ", "1"), ("dull ", "0")],
        ("fine ", "dull "),
        None,
        (1, 0),
    ),
]
"""By task: its file, header and lines as the official download has them, and what they hold."""


@pytest.mark.parametrize(
    ("task", "file", "lines", "first", "second", "labels"), TRAINING, ids=[each[0] for each in TRAINING]
)
def test_read_rows_of_a_task_finds_texts_and_labels_by_name(
    task: str,
    file: str,
    lines: list[tuple[str, ...]],
    first: tuple[str, ...],
    second: tuple[str, ...] | None,
    labels: tuple[float, ...],
    *,
    tmp_path: Path,
) -> None:
    write(tmp_path / file, *lines)
    rows = read_rows(job(tmp_path, task), SplitName.TRAIN)
    assert (rows.first, rows.second, rows.labels) == (first, second, labels)
    assert all(isinstance(label, float) is (task == "stsb") for label in rows.labels or ())


UNLABELLED = [
    ("cola", "CoLA/test.tsv", SplitName.TEST, [("index", "sentence"), ("0", "Bill left.")], ("Bill left.",)),
    ("stsb", "STS-B/test.tsv", SplitName.TEST, [("index", "sentence2", "sentence1"), ("0", "b", "a")], ("a",)),
    ("mnli", "MNLI/test_matched.tsv", SplitName.TEST_MATCHED, [MNLI_HEADER, mnli_line(0, "a", "b")], ("a",)),
    (
        "ax",
        "diagnostic/diagnostic.tsv",
        SplitName.AX,
        [("index", "sentence1", "sentence2"), ("0", "a", "b")],
        ("a",),
    ),
]


@pytest.mark.parametrize(("task", "file", "split", "lines", "first"), UNLABELLED)
def test_read_rows_of_a_test_file_has_no_labels(
    task: str, file: str, split: SplitName, lines: list[tuple[str, ...]], first: tuple[str, ...], *, tmp_path: Path
) -> None:
    folder = (tmp_path / file).parent
    if task != "ax":
        write(folder / "train.tsv", ("a file that is there",))
    write(tmp_path / file, *lines)
    rows = read_rows(job(tmp_path, task), split)
    assert (rows.first, rows.labels) == (first, None)
    write(tmp_path / file, *lines, lines[-1][:1])
    told = f"has 1 fields, not {len(lines[0])}; .*by data.malformed_lines: skip"
    with pytest.raises(DataFileError, match=f"{file} line {len(lines) + 1} {told}"):
        read_rows(job(tmp_path, task), split)


def test_mnli_is_evaluated_on_two_splits_by_their_names(tmp_path: Path) -> None:
    header, line = (*MNLI_HEADER, "gold_label"), mnli_line(0, "a", "b", "neutral")
    for name, count in (("train", 4), ("dev_matched", 3), ("dev_mismatched", 2)):
        write(tmp_path / "MNLI" / f"{name}.tsv", header, *[line] * count)
    facts = inspect_data(job(tmp_path, "mnli"))
    assert [(split.name, split.num_rows, split.labelled) for split in facts.splits] == [
        ("train", 4, True),
        ("validation_matched", 3, True),
        ("validation_mismatched", 2, True),
    ]


def test_h02_scores_stay_numbers(tmp_path: Path) -> None:
    header = ("sentence1", "sentence2", "score")
    write(tmp_path / "STS-B" / "train.tsv", header, *(("a", "b", score) for score in ("2.5", "3.8", "0.0", "5.0")))
    assert read_rows(job(tmp_path, "stsb"), SplitName.TRAIN).labels == (2.5, 3.8, 0.0, 5.0)
    facts = inspect_data(job(tmp_path, "stsb"))
    assert (facts.labels, facts.num_labels) == ((), 1)


@pytest.mark.parametrize("score", ["good", "", "nan", "inf"])
def test_score_that_is_no_number_is_refused_by_place(score: str, tmp_path: Path) -> None:
    write(tmp_path / "STS-B" / "train.tsv", ("sentence1", "sentence2", "score"), ("a", "b", "1"), ("c", "d", score))
    with pytest.raises(DataFileError, match=rf"train\.tsv line 3 has '{score}' in column 'score', need a number"):
        read_rows(job(tmp_path, "stsb"), SplitName.TRAIN)


@pytest.mark.parametrize(
    ("task", "file", "lines", "first", "second", "labels"), TRAINING, ids=[each[0] for each in TRAINING]
)
def test_lines_that_do_not_fit_are_refused_by_file_and_number_or_counted(
    task: str,
    file: str,
    lines: list[tuple[str, ...]],
    first: tuple[str, ...],
    second: tuple[str, ...] | None,
    labels: tuple[float, ...],
    *,
    tmp_path: Path,
) -> None:
    """A line cut short, one with a field too many, one whose label is none, and a file that ends within a line."""
    *others, last = lines
    label = {"cola": 1, "mrpc": 0}.get(task, len(last) - 1)
    malformed = [
        (last[:-1], f"has {len(last) - 1} fields, not {len(last)}"),
        ((*last, "x"), f"has {len(last) + 1} fields, not {len(last)}"),
        ((*last[:label], "x", *last[label + 1 :]), "has 'x' in column '.*', need "),
    ]
    for line, told in malformed:
        write(tmp_path / file, *others, line, last)
        with pytest.raises(DataFileError, match=f"{tmp_path / file} line {len(lines)} {told}"):
            read_rows(job(tmp_path, task), SplitName.TRAIN)
    write(tmp_path / file, *others, *(line for line, _ in malformed), last)
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content + b"\t".join(content.splitlines()[-1].split(b"\t")[:-1]))
    with pytest.raises(DataFileError, match=f"{file} line {len(lines)} {malformed[0][1]}; lines that do not fit: 4; "):
        read_rows(job(tmp_path, task), SplitName.TRAIN)
    skipping = job(tmp_path, task, {"data.malformed_lines": "skip"})
    rows = read_rows(skipping, SplitName.TRAIN)
    assert (rows.first, rows.second, rows.labels, rows.num_malformed) == (first, second, labels, 4)
    assert inspect_data(skipping).splits[0].num_malformed == 4


def test_h01_split_to_evaluate_on_whose_rows_have_no_labels_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """It is shaped like SST-2's, five rows with -1; as the test split it needs none, and is predicted."""
    unlabelled = [(f"row {index}", "-1") for index in range(5)]
    write(tmp_path / "SST-2" / "train.tsv", ("sentence", "label"), ("a", "1"), ("b", "0"))
    write(tmp_path / "SST-2" / "test.tsv", ("sentence", "label"), *unlabelled)
    (facts,) = inspect_data(job(tmp_path, "sst2", {"predict.split": "test"})).splits
    assert (facts.num_rows, facts.labelled) == (5, False)
    write(tmp_path / "SST-2" / "dev.tsv", ("sentence", "label"), *unlabelled)
    told = r"dev\.tsv line 2 has '-1' in column 'label', which means no label, .*; lines that do not fit: 5"
    with pytest.raises(DataFileError, match=told):
        inspect_data(job(tmp_path, "sst2"))


def test_task_without_a_file_to_train_on_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "diagnostic" / "diagnostic.tsv", ("index", "sentence1", "sentence2"), ("0", "a", "b"))
    with pytest.raises(DataFileError, match="task ax has no split to train on"):
        inspect_data(job(tmp_path, "ax"))


def test_diagnostic_set_is_predicted_under_the_label_ids_of_a_model_of_mnli(tmp_path: Path) -> None:
    """It has no folder MNLI beside it; predictions have names, as GLUE's submission AX.tsv has them."""
    model = model_with(tmp_path / "model", "contradiction", "entailment", "neutral")
    write(tmp_path / "diagnostic" / "diagnostic.tsv", ("index", "sentence1", "sentence2"), *[("0", "a", "b")] * 3)
    changes = {"predict.split": "ax", "model.pretrained": str(model)}
    facts = inspect_data(job(tmp_path, "ax", changes))
    assert [(split.name, split.num_rows, split.labelled) for split in facts.splits] == [("ax", 3, False)]
    assert facts.labels == facts.written_labels == ("contradiction", "entailment", "neutral")
    write(tmp_path / "SST-2" / "train.tsv", ("sentence", "label"), ("a", "1"))
    with pytest.raises(SpecError, match=r"predict\.split: is ax, but task sst2 has train in its files"):
        inspect_data(job(tmp_path, "sst2", {"predict.split": "ax"}))


def model_with(folder: Path, *labels: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"id2label": {str(i): label for i, label in enumerate(labels)}}))
    return folder


@pytest.mark.parametrize(
    ("named", "order"),
    [
        (("contradiction", "entailment", "neutral"), ("contradiction", "entailment", "neutral")),
        (("CONTRADICTION", "Neutral", "ENTAILMENT"), ("contradiction", "neutral", "entailment")),
        (("LABEL_0", "LABEL_1", "LABEL_2"), INFERENCE),
        (("a", "b", "c"), INFERENCE),
        (("entailment", "neutral"), INFERENCE),
        (("entailment", "entailment", "neutral"), INFERENCE),
        ((), INFERENCE),
    ],
)
def test_labels_follow_the_model_that_has_the_same_names(
    named: tuple[str, ...], order: tuple[str, ...], tmp_path: Path
) -> None:
    assert labels_of(MNLI, model_with(tmp_path, *named)) == order


def test_labels_of_no_model_or_of_a_broken_config_are_those_of_the_data_set(tmp_path: Path) -> None:
    assert labels_of(MRPC, None) == ("not_equivalent", "equivalent")
    assert labels_of(MRPC, tmp_path) == ("not_equivalent", "equivalent")
    (tmp_path / "config.json").write_text("[]")
    assert labels_of(MRPC, tmp_path) == ("not_equivalent", "equivalent")
    assert labels_of(STSB, model_with(tmp_path, "LABEL_0")) == ()


def test_h05_rows_get_the_ids_of_the_model(tmp_path: Path) -> None:
    model = model_with(tmp_path / "model", "contradiction", "entailment", "neutral")
    lines = [mnli_line(index, "a", "b", label) for index, label in enumerate(INFERENCE)]
    write(tmp_path / "MNLI" / "train.tsv", (*MNLI_HEADER, "gold_label"), *lines)
    mapped = job(tmp_path, "mnli", {"model.pretrained": str(model)})
    assert read_rows(mapped, SplitName.TRAIN).labels == (1, 2, 0)
    assert inspect_data(mapped).labels == ("contradiction", "entailment", "neutral")
    assert read_rows(job(tmp_path, "mnli"), SplitName.TRAIN).labels == (0, 1, 2)


def test_every_task_of_the_benchmark_is_there() -> None:
    assert set(TASKS) == {"cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax", "demo"}
    assert {name: task.num_texts for name, task in TASKS.items() if task.num_texts == 1} == {
        "cola": 1,
        "sst2": 1,
        "demo": 1,
    }
