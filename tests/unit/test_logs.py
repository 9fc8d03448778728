from pathlib import Path

import pytest

from coordinator.logs import Line, LogFile


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def test_log_file_reads_lines_once_they_are_complete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    assert log.read() == []
    path.write_bytes(b"one\ntw")
    assert texts(log.read()) == ["one"]
    assert log.read() == []
    with path.open("ab") as file:
        file.write(b"o\nthree\nrest")
    assert texts(log.read()) == ["two", "three"]
    assert texts(log.last()) == ["rest"]
    assert log.last() == []


def test_log_file_line_longer_than_a_block_comes_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 700_000 + b"\nnext\n")
    log = LogFile(path)
    assert texts(log.read()) == ["x" * 700_000, "next"]


def test_log_file_tail_gives_the_last_lines_then_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    log = LogFile(path)
    assert texts(log.skip_to_tail(2)) == ["line 98", "line 99"]
    with path.open("a") as file:
        file.write("line 100\n")
    assert texts(log.read()) == ["line 100"]


def test_log_file_tail_of_a_huge_log_drops_the_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 5_000_000 + b"\nshort\n")
    assert texts(LogFile(path).skip_to_tail(5)) == ["short"]


def test_log_file_bytes_that_are_no_text_are_marked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\n")
    assert texts(LogFile(path).read()) == ["\ufffd\ufffd"]


@pytest.mark.parametrize("block_bytes", [1, 3, 1000])
def test_log_file_read_from_the_end_of_any_line_gives_the_rest(
    block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.logs.READ_BYTES", block_bytes)
    path = tmp_path / "log"
    path.write_bytes("first\n\nzw\u00f6lf\n\r\nrest".encode())

    def rest(offset: int) -> list[Line]:
        log, lines = LogFile(path, offset=offset), []
        while fresh := log.read():
            lines += fresh
        return lines + log.last()

    whole = rest(0)
    assert whole == [Line("first", 6), Line("", 7), Line("zw\u00f6lf", 14), Line("\r", 16), Line("rest", 20)]
    for number, line in enumerate(whole, start=1):
        assert rest(line.end) == whole[number:]
    assert rest(1000) == []


def test_log_file_tail_tells_where_its_lines_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 5_000_000 + b"\nshort\n")
    log = LogFile(path)
    assert log.skip_to_tail(1) == [Line("short", 5_000_007)]
    with path.open("ab") as file:
        file.write(b"more\n")
    assert log.read() == [Line("more", 5_000_012)]
