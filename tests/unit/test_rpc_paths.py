"""Containment of paths."""

from pathlib import Path

from takt.rpc.paths import is_under


def test_is_under_accepts_the_root_and_what_lies_below(tmp_path: Path) -> None:
    assert is_under(tmp_path, [tmp_path])
    assert is_under(tmp_path / "a" / "b", [tmp_path / "other", tmp_path])


def test_is_under_refuses_siblings_with_the_same_beginning(tmp_path: Path) -> None:
    assert not is_under(tmp_path / "data-secret", [tmp_path / "data"])


def test_is_under_refuses_dots_that_lead_out(tmp_path: Path) -> None:
    assert not is_under(tmp_path / "data" / ".." / "x", [tmp_path / "data"])


def test_is_under_refuses_links_that_lead_out(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path)
    assert not is_under(tmp_path / "data" / "link" / "x", [tmp_path / "data"])


def test_is_under_without_roots_refuses_all(tmp_path: Path) -> None:
    assert not is_under(tmp_path, [])
