"""Tokenised splits on disk: the same rows again, and never a failure that is not the tokens' own."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from dataloader_svc.token_folder import TokenFolder
from dataloader_svc.tokens import TokenisedRows
from tests.unit.data_rows import key_of, split_of, write_text

ROWS = split_of([90, 3, 4, 91], [90, 91], [90, 5, 91])
PLENTY = 2**20


def fail() -> TokenisedRows:
    raise AssertionError("the rows are on disk")


def same(found: TokenisedRows, expected: TokenisedRows) -> bool:
    """Whether all values and all types of numbers are the same."""
    pairs = [(getattr(found, field.name), getattr(expected, field.name)) for field in fields(TokenisedRows)]
    return all(
        type(one) is type(other)
        and (not isinstance(one, np.ndarray) or (one.dtype == other.dtype and one.shape == other.shape))
        and np.array_equal(one, other)
        for one, other in pairs
    )


def notices(logs: list[dict[str, object]]) -> list[object]:
    return [entry["event"] for entry in logs if entry["log_level"] == "warning"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "tokens"


def only_file(kept: Path) -> Path:
    (path,) = kept.iterdir()
    return path


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        split_of([90, 3], labelled=False),
        split_of(),
        replace(ROWS, labels_N=np.array([0.5, 5.0, 2.25], dtype=np.float32), mask_token_id=None),
    ],
    ids=["ids", "no labels", "no rows", "numbers"],
)
def test_get_from_another_folder_object_is_what_was_tokenised(
    folder: Path,
    kept: Path,
    rows: TokenisedRows,
) -> None:
    key = key_of(folder)
    first = TokenFolder(kept, max_bytes=PLENTY).get(key, lambda: rows)

    again = TokenFolder(kept, max_bytes=PLENTY).get(key, fail)

    assert first is rows
    assert same(again, rows)
    assert not same(again, replace(rows, pad_token_id=98))


def test_get_other_key_has_a_file_of_its_own(folder: Path, kept: Path) -> None:
    tokens = TokenFolder(kept, max_bytes=PLENTY)
    tokens.get(key_of(folder), lambda: ROWS)
    other = split_of([90, 91])

    assert tokens.get(key_of(folder, max_length=9), lambda: other) is other
    assert same(tokens.get(key_of(folder), fail), ROWS)
    assert len(list(kept.iterdir())) == 2


def test_get_rows_of_no_file_are_kept_as_well(folder: Path, kept: Path) -> None:
    key = key_of(folder, source=None, stamps=())
    TokenFolder(kept, max_bytes=PLENTY).get(key, lambda: ROWS)

    assert same(TokenFolder(kept, max_bytes=PLENTY).get(key, fail), ROWS)


def test_get_missing_file_is_for_who_tokenises_to_tell(folder: Path, kept: Path) -> None:
    (folder / "train.tsv").unlink()

    assert TokenFolder(kept, max_bytes=PLENTY).get(key_of(folder), lambda: ROWS) is ROWS
    assert not kept.exists()


def test_get_file_that_changes_meanwhile_is_not_kept(folder: Path, kept: Path) -> None:
    def tokenise() -> TokenisedRows:
        (folder / "train.tsv").write_text("bad\t0\n")
        return ROWS

    TokenFolder(kept, max_bytes=PLENTY).get(key_of(folder), tokenise)

    assert not kept.exists()


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:20],
        lambda content: b"",
        lambda content: content + b"\0",
        lambda content: flipped(content, 0),
        lambda content: flipped(content, 60),
        lambda content: flipped(content, -1 % len(content)),
        lambda content: b"\x80\x04K\x01.",
    ],
)
def test_get_damaged_file_is_noticed_and_made_again(
    folder: Path,
    kept: Path,
    damage: Callable[[bytes], bytes],
) -> None:
    tokens = TokenFolder(kept, max_bytes=PLENTY)
    tokens.get(key_of(folder), lambda: ROWS)
    whole = only_file(kept).read_bytes()
    only_file(kept).write_bytes(damage(whole))

    with capture_logs() as logs:
        assert tokens.get(key_of(folder), lambda: ROWS) is ROWS

    assert notices(logs) == ["kept tokens cannot be used and are made again"]
    assert only_file(kept).read_bytes() == whole


def test_get_file_of_another_split_under_this_name_is_noticed(folder: Path, kept: Path) -> None:
    tokens, other = TokenFolder(kept, max_bytes=PLENTY), split_of([90, 91])
    tokens.get(key_of(folder), lambda: ROWS)
    mine = only_file(kept)
    tokens.get(key_of(folder, max_length=9), lambda: other)
    (others,) = set(kept.iterdir()) - {mine}
    os.replace(others, mine)

    assert tokens.get(key_of(folder), lambda: ROWS) is ROWS


def test_get_unfinished_file_of_a_killed_service_is_never_read(folder: Path, kept: Path) -> None:
    tokens = TokenFolder(kept, max_bytes=PLENTY)
    tokens.get(key_of(folder), lambda: ROWS)
    whole = only_file(kept)
    whole.rename(whole.with_suffix(".0123.unfinished"))

    assert tokens.get(key_of(folder), lambda: ROWS) is ROWS
    assert same(tokens.get(key_of(folder), fail), ROWS)


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """Let the system refuse every byte of a file past this one, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_get_full_disk_is_noticed_and_leaves_nothing(folder: Path, kept: Path) -> None:
    with capture_logs() as logs, file_size_limit(100):
        assert TokenFolder(kept, max_bytes=PLENTY).get(key_of(folder), lambda: ROWS) is ROWS

    assert notices(logs) == ["tokens cannot be kept"]
    assert list(kept.iterdir()) == []


def test_get_folder_that_cannot_be_made_is_noticed(folder: Path, kept: Path) -> None:
    kept.parent.write_text("no folder")

    with capture_logs() as logs:
        assert TokenFolder(kept, max_bytes=PLENTY).get(key_of(folder), lambda: ROWS) is ROWS

    assert "tokens cannot be kept" in notices(logs)


def test_get_failure_of_the_text_is_the_callers(folder: Path, kept: Path) -> None:
    with pytest.raises(AssertionError, match="on disk"):
        TokenFolder(kept, max_bytes=PLENTY).get(key_of(folder), fail)

    assert not kept.exists()


def test_get_past_the_limit_removes_what_was_used_longest_ago(folder: Path, kept: Path) -> None:
    keys = [key_of(folder, max_length=length) for length in (8, 9, 10)]
    tokens = TokenFolder(kept, max_bytes=PLENTY)
    files = []
    for index, key in enumerate(keys[:2]):
        tokens.get(key, lambda: ROWS)
        (file,) = set(kept.iterdir()) - set(files)
        os.utime(file, (index, index))
        files.append(file)
    tokens.get(keys[0], fail)  # now the second is the one used longest ago
    (kept / "README").write_text("not the service's")

    size = files[0].stat().st_size
    TokenFolder(kept, max_bytes=2 * size).get(keys[2], lambda: ROWS)

    assert files[0].exists()
    assert not files[1].exists()
    assert (kept / "README").exists()
    assert len(list(kept.iterdir())) == 3


def test_get_past_the_limit_removes_unfinished_files_as_well(folder: Path, kept: Path) -> None:
    kept.mkdir(parents=True)
    (kept / "0.1.unfinished").write_bytes(bytes(PLENTY))

    TokenFolder(kept, max_bytes=PLENTY).get(key_of(folder), lambda: ROWS)

    assert only_file(kept).suffix == ".tokens"


def test_get_rows_larger_than_the_limit_are_not_kept(folder: Path, kept: Path) -> None:
    with capture_logs() as logs:
        TokenFolder(kept, max_bytes=100).get(key_of(folder), lambda: ROWS)

    assert notices(logs) == ["tokens cannot be kept"]
    assert not kept.exists()
