"""What the tokens of a split depend on, within a process and beyond it."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from dataloader_svc import split_key
from dataloader_svc.corpus import stamps
from dataloader_svc.settings import MalformedLines
from dataloader_svc.splits import SplitName
from tests.data_jobs import settings
from tests.unit.data_rows import key_of, write_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_text(tmp_path / "first")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"])
def test_stamps_change_with_each_file_that_tells_tokens(tmp_path: Path, name: str) -> None:
    job = settings({"data.tokenizer": str(tmp_path)})
    before = stamps(job, SplitName.TRAIN)
    (tmp_path / "README.md").write_text("{}")
    assert stamps(job, SplitName.TRAIN) == before

    (tmp_path / name).write_text("{}")

    assert stamps(job, SplitName.TRAIN) != before


def test_stamps_change_with_a_file_of_the_same_size(tmp_path: Path) -> None:
    job, text = settings({"data.tokenizer": str(tmp_path)}), tmp_path / "tokenizer.json"
    text.write_text("{}")
    before, written = stamps(job, SplitName.TRAIN), text.stat()

    text.write_text("[]")
    os.utime(text, ns=(written.st_atime_ns, written.st_mtime_ns + 1_000_000_000))

    assert stamps(job, SplitName.TRAIN) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "cola"},
        {"labels": ("yes", "no")},
        {"malformed_lines": MalformedLines.SKIP},
        {"split": SplitName.VALIDATION},
        {"max_length": 9},
        {"max_train_rows": 1},
        {"stamps": ()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_digest_changes_with_each_value(folder: Path, changes: dict[str, Any]) -> None:
    assert key_of(folder, **changes).digest(service="now") != key_of(folder).digest(service="now")


@pytest.mark.parametrize("name", ["train.tsv", "tokenizer.json"])
def test_digest_changes_with_a_file_of_the_same_size_and_time(folder: Path, name: str) -> None:
    before, times = key_of(folder).digest(service="now"), (folder / name).stat()
    text = (folder / name).read_text()
    (folder / name).write_text(text[:-1] + "x")
    os.utime(folder / name, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert key_of(folder).digest(service="now") != before


def test_digest_stays_when_the_files_are_moved(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "second")

    assert key_of(tmp_path / "second").digest(service="now") == key_of(folder).digest(service="now")


def test_digest_changes_with_the_service(folder: Path) -> None:
    assert key_of(folder).digest(service="next") != key_of(folder).digest(service="now")


def test_service_digest_changes_with_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    before = split_key.service_digest()
    monkeypatch.setattr(tokenizers, "__version__", "999.0")

    assert split_key.service_digest() != before


def test_service_digest_changes_with_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "sources"
    shutil.copytree(split_key.SOURCES, copy)
    before = split_key.service_digest()
    monkeypatch.setattr(split_key, "SOURCES", copy)
    assert split_key.service_digest() == before

    with (copy / "glue.py").open("a") as file:
        file.write("# read another way\n")

    assert split_key.service_digest() != before
