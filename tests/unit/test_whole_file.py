"""Files that are there whole or as they were."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.cli.whole_file import write_file


def failing() -> Iterator[str]:
    yield "half"
    raise OSError(errno.ENOSPC, "No space left on device")


def test_file_that_cannot_be_completed_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text("old")
    with pytest.raises(OSError, match="No space"):
        write_file(path, failing())
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["costs.json"])


def test_new_file_has_the_mode_of_any_other_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    plain, path, private = (tmp_path / name for name in ("plain", "new", "private"))
    plain.touch()
    write_file(path, ["a", "b"])
    assert (path.read_text(), path.stat().st_mode) == ("ab", plain.stat().st_mode)
    private.touch(mode=0o600)
    write_file(private, ["c"])
    assert (private.read_text(), private.stat().st_mode & 0o777) == ("c", 0o600)


def test_link_still_leads_to_its_file(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    write_file(link, ["text"])
    assert (link.is_symlink(), file.read_text()) == (True, "text")


def test_device_is_written_to_and_a_folder_is_refused(tmp_path: Path) -> None:
    write_file(Path("/dev/null"), ["text"])
    assert not Path("/dev/null").is_file()
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path, ["text"])
