"""Announcements, and what stops a service; processes of their own, because signals and stdin are the process's."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from takt.rpc.lifecycle import Announcement, announce, parse_announcement

WAITS = """
import asyncio, sys
from takt.rpc.lifecycle import announce, until_stopped
async def main():
    stopped = until_stopped(exit_with_stdin="stdin" in sys.argv)
    announce("service", "127.0.0.1:1", "127.0.0.1:2")
    print(await stopped, flush=True)
asyncio.run(main())
"""


@contextmanager
def waiting(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that waits until it is stopped; yield it once it has announced itself."""
    command = [sys.executable, "-c", WAITS, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert parse_announcement(process.stdout.readline()) is not None
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("address", ["127.0.0.1:43121", None])
def test_announcement_is_read_back_as_it_was(address: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    announce("coordinator", address, "127.0.0.1:40011")
    line = capsys.readouterr().out
    assert parse_announcement(line) == Announcement("coordinator", address, "127.0.0.1:40011")


def test_announcement_of_a_server_has_the_agreed_words() -> None:
    line = "coordinator listening on 127.0.0.1:43121, metrics on 127.0.0.1:40011"
    assert str(Announcement("coordinator", "127.0.0.1:43121", "127.0.0.1:40011")) == line


@pytest.mark.parametrize("line", ["", "listening on x", "coordinator listening on x", "INFO coordinator started"])
def test_parse_announcement_of_another_line_is_none(line: str) -> None:
    assert parse_announcement(line) is None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_until_stopped_ends_at_a_signal_and_names_it(number: signal.Signals) -> None:
    with waiting() as process:
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
        assert out == f"{number.name} was received\n"
        assert process.returncode == 0


@pytest.mark.timeout(30)
def test_until_stopped_ends_with_stdin_where_asked() -> None:
    with waiting("stdin") as process:
        out, _ = process.communicate(input="anything", timeout=20)
        assert out == "stdin was closed\n"
        assert process.returncode == 0


@pytest.mark.timeout(30)
def test_until_stopped_outlives_stdin_where_not_asked() -> None:
    with waiting() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "SIGTERM was received\n"
