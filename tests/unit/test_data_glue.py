"""Files in the GLUE layout."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from dataloader_svc.corpus import find_splits, read_rows
from dataloader_svc.errors import DataFileError, RequestError
from dataloader_svc.settings import DataSettings
from dataloader_svc.splits import SplitName
from dataloader_svc.tokens import open_tokenizer
from tests.data_jobs import minilm, real_glue, settings, write_sst2

MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"


def sst2(source: Path, changes: dict[str, object] | None = None) -> DataSettings:
    return settings(
        {"data.task": "sst2", "data.source": str(source), "data.tokenizer": str(minilm()), **(changes or {})}
    )


def mrpc(source: Path) -> DataSettings:
    return settings({"data.task": "mrpc", "data.source": str(source), "data.tokenizer": str(minilm())})


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.real_glue
@pytest.mark.parametrize(
    ("task", "counts"),
    [  # as the files' own README counts them
        ("cola", (8_551, 1_043, 1_063)),
        ("mrpc", (3_667, 408, 1_725)),
        ("rte", (2_490, 277, 3_000)),
        ("sst2", (67_349, 872, 1_821)),
        ("stsb", (5_749, 1_500, 1_379)),
    ],
)
def test_read_rows_real_files_have_the_counted_rows(task: str, counts: tuple[int, ...]) -> None:
    job = settings({"data.task": task, "data.source": str(real_glue()), "data.tokenizer": str(minilm())})

    found = {split: read_rows(job, split) for split in job.task.splits}

    assert tuple(len(rows) for rows in found.values()) == counts
    assert [rows.labels is not None for rows in found.values()] == [True, True, False]
    assert all((rows.second is not None) == (task in ("mrpc", "rte", "stsb")) for rows in found.values())
    labels = set(found[SplitName.TRAIN].labels or ())
    assert labels == {0, 1} if task != "stsb" else (min(labels), max(labels)) == (0.0, 5.0)


@pytest.mark.real_glue
def test_read_rows_real_mrpc_keeps_quotes_and_columns_apart() -> None:
    rows = read_rows(mrpc(real_glue()), SplitName.TRAIN)

    assert rows.first[0].startswith('Amrozi accused his brother , whom he called " the witness " ,')
    assert rows.second is not None
    assert rows.second[0].startswith('Referring to him as only " the witness " ,')
    assert rows.labels is not None
    assert rows.labels[:3] == (1, 0, 1)


@pytest.mark.parametrize(
    "content",
    [
        b'sentence\tlabel\n"half a quote\t1\nplain\t0\n',
        b'\xef\xbb\xbfsentence\tlabel\r\n"half a quote\t1\r\nplain\t0\r\n',
        b'label\tsentence\n1\t"half a quote\n0\tplain',
    ],
    ids=["plain", "bom and crlf", "other column order, no last newline"],
)
def test_read_rows_any_writing_of_a_file_gives_the_same_rows(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "SST-2" / "train.tsv", content)

    rows = read_rows(sst2(tmp_path), SplitName.TRAIN)

    assert rows.first == ('"half a quote', "plain")
    assert rows.labels == (1, 0)


def test_read_rows_unicode_line_separator_does_not_end_a_row(tmp_path: Path) -> None:
    write_sst2(tmp_path, [("one\u2028row \x0b here\x85", 1)])

    assert read_rows(sst2(tmp_path), SplitName.TRAIN).first == ("one\u2028row \x0b here\x85",)


def test_read_rows_test_split_has_no_labels(tmp_path: Path) -> None:
    write_sst2(tmp_path, [("a", 0)])
    write(tmp_path / "SST-2" / "test.tsv", b"index\tsentence\n0\tfirst\n1\tsecond\n")

    rows = read_rows(sst2(tmp_path), SplitName.TEST)

    assert (rows.first, rows.labels) == (("first", "second"), None)


def test_read_rows_max_train_rows_cuts_the_training_split_only(tmp_path: Path) -> None:
    rows = [(f"row {index}", index % 2) for index in range(5)]
    write_sst2(tmp_path, rows)
    write_sst2(tmp_path, rows, split="dev")
    job = sst2(tmp_path, {"data.max_train_rows": 3})

    assert read_rows(job, SplitName.TRAIN).first == ("row 0", "row 1", "row 2")
    assert len(read_rows(job, SplitName.VALIDATION)) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"sentence\tlabel\na\t1\nb\n", r"train\.tsv line 3 has 1 fields, not 2; .*by data.malformed_lines: skip"),
        (b"sentence\tlabel\na\t1\t0\n", r"train\.tsv line 2 has 3 fields, not 2"),
        (b"sentence\tlabel\na\t1\n\nb\t0\n", r"train\.tsv line 3 has 1 fields"),
        (b"sentence\tlabel\na\t1\nb\tpositive\n", r"train\.tsv line 3 has 'positive' in column 'label', need one of"),
        (b"sentence\tlabel\na\t-1\n", r"train\.tsv line 2 has '-1' in column 'label', which means no label, need one"),
        (b"text\tlabel\na\t1\n", r"train\.tsv has no column 'sentence'; its header names 'text', 'label'"),
        (b"sentence\na\n", r"train\.tsv has no column 'label'"),
        (b"sentence\tlabel\tlabel\na\t1\t0\n", r"train\.tsv has 2 columns 'label'; give all but one another name"),
        (b"", r"train\.tsv is empty"),
        (b"\xef\xbb\xbf", r"train\.tsv is empty"),
        (
            b"sentence\tlabel\na\t1\nb\xff\t1\n",
            r"train\.tsv line 3 is not UTF-8: byte 1 of it cannot be decoded; mend the file, or train without",
        ),
        (b"sentence\tlabel\na\t1\n\xe2\x82", r"train\.tsv line 3 is not UTF-8: byte 0 of it"),
        (b"sentence\tlabel\na\t1\nb\0\t1\n", r"train\.tsv line 3 is no text: byte 1 of it is NUL; mend the file, or"),
        (b"s\xff\tlabel\na\t1\n", r"train\.tsv line 1 is not UTF-8: byte 1 of it cannot be decoded; it should name"),
    ],
)
def test_read_rows_broken_file_is_refused_by_place(tmp_path: Path, content: bytes, message: str) -> None:
    write(tmp_path / "SST-2" / "train.tsv", content)

    with pytest.raises(DataFileError, match=message) as raised:
        read_rows(sst2(tmp_path), SplitName.TRAIN)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (b"x" * 5_000_000 + b"\n", "xx'... of 5000000 characters"),
        (b"\t".join(b"c%d" % number for number in range(200_000)), "'c18', 'c19' and 199980 more"),
        (b"sentence\tlabel\na\t" + b"x" * 5_000_000, "train without such lines by data.malformed_lines: skip"),
    ],
    ids=["long header", "wide header", "long label"],
)
def test_read_rows_refusal_of_another_kind_of_file_is_a_short_line(tmp_path: Path, content: bytes, end: str) -> None:
    """It travels as the text of a gRPC status, which may have 8 KiB."""
    write(tmp_path / "SST-2" / "train.tsv", content)

    with pytest.raises(DataFileError) as raised:
        read_rows(sst2(tmp_path), SplitName.TRAIN)
    assert str(raised.value).endswith(end)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("score", ["-1", "-1.000", "5.001", "1e39", "nan", "-inf", "4,5", "0_5", ""])
def test_read_rows_score_outside_of_stsb_is_refused(tmp_path: Path, score: str) -> None:
    write(tmp_path / "STS-B" / "train.tsv", f"sentence1\tsentence2\tscore\na\tb\t5\nc\td\t{score}\n".encode())
    job = settings({"data.task": "stsb", "data.source": str(tmp_path), "data.tokenizer": str(minilm())})

    with pytest.raises(DataFileError, match=f"line 3 has '{score}' in column 'score', need a number from 0 to 5; mend"):
        read_rows(job, SplitName.TRAIN)


def test_read_rows_skip_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "SST-2" / "train.tsv", b"sentence\tlabel\na,1\nb,0\n")

    with pytest.raises(DataFileError, match="line 2 has 1 fields, not 2; lines that do not fit: 2; there is no"):
        read_rows(sst2(tmp_path, {"data.malformed_lines": "skip"}), SplitName.TRAIN)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.mkdir, "is no regular file; put the file of the validation split in its place, or remove it"),
        (os.mkfifo, "is no regular file"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
        (lambda path: path.symlink_to("elsewhere"), "is a link to elsewhere, which is not there"),
    ],
    ids=["folder", "pipe", "loop", "loose link"],
)
def test_find_splits_what_is_no_file_is_not_a_missing_split(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    """Else a job would go on without the evaluation that its owner believes in."""
    write_sst2(tmp_path, [("a", 0)])
    make(tmp_path / "SST-2" / "dev.tsv")

    with pytest.raises(DataFileError, match=f"dev.tsv {message}"):
        find_splits(sst2(tmp_path))


def test_find_splits_missing_folder_names_the_task_and_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="task mrpc: there is no folder") as raised:
        find_splits(mrpc(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere" / "MRPC") in str(raised.value)


def test_find_splits_missing_training_file_names_it(tmp_path: Path) -> None:
    write(tmp_path / "MRPC" / "dev.tsv", f"{MRPC_HEADER}\n".encode())

    with pytest.raises(DataFileError, match=r"task mrpc: there is no file train\.tsv in"):
        find_splits(mrpc(tmp_path))


def test_read_rows_split_without_file_names_it_and_lists_those_there_are(tmp_path: Path) -> None:
    write_sst2(tmp_path, [("a", 0)])

    refusal = f"task sst2 has no split validation; it has train; there is no file {tmp_path}/SST-2/dev.tsv$"
    with pytest.raises(RequestError, match=refusal):
        read_rows(sst2(tmp_path), SplitName.VALIDATION)


def test_read_rows_and_tokenise_attempt_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    write_sst2(tmp_path, [("a fine film", 1)])
    job = sst2(tmp_path)

    rows = open_tokenizer(job.tokenizer).tokenise(
        read_rows(job, SplitName.TRAIN),
        max_length=16,
    )

    assert rows.num_rows == 1
