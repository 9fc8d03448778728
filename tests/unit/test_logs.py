from pathlib import Path

from coordinator.logs import LogFile


def test_log_file_reads_lines_once_they_are_complete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    assert log.read() == []
    path.write_bytes(b"one\ntw")
    assert log.read() == ["one"]
    assert log.read() == []
    with path.open("ab") as file:
        file.write(b"o\nthree\nrest")
    assert log.read() == ["two", "three"]
    assert log.last() == ["rest"]
    assert log.last() == []


def test_log_file_line_longer_than_a_block_comes_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 700_000 + b"\nnext\n")
    log = LogFile(path)
    assert log.read() == ["x" * 700_000, "next"]


def test_log_file_tail_gives_the_last_lines_then_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    log = LogFile(path)
    assert log.skip_to_tail(2) == ["line 98", "line 99"]
    with path.open("a") as file:
        file.write("line 100\n")
    assert log.read() == ["line 100"]


def test_log_file_tail_of_a_huge_log_drops_the_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 5_000_000 + b"\nshort\n")
    assert LogFile(path).skip_to_tail(5) == ["short"]


def test_log_file_bytes_that_are_no_text_are_marked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\n")
    assert LogFile(path).read() == ["\ufffd\ufffd"]
