"""`takt up` refuses before it starts anything."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.cli import services
from coordinator.cli.app import main
from coordinator.cli.processes import descendants
from coordinator.cli.services import ServiceCommand


@pytest.fixture
def foreign_address() -> Iterator[str]:
    """Return an address that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_up_on_a_port_in_use_exits_5_at_once_and_names_it(
    foreign_address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert main(["up", "--workers", "1", "--listen", foreign_address, "--state-dir", str(tmp_path / "s")]) == 5
    assert time.monotonic() - began < 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "address in use" in captured.err
    assert foreign_address in captured.err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("listen", ["0.0.0.0:7700", "nowhere", "127.0.0.1:70000"])
def test_up_on_an_address_that_is_not_allowed_exits_2(
    listen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--workers", "1", "--listen", listen, "--state-dir", str(tmp_path / "s")]) == 2
    assert listen in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_up_with_a_state_folder_that_cannot_be_written_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["up", "--workers", "1", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "file")]) == 2
    assert "--state-dir" in capsys.readouterr().err
    assert not descendants([os.getpid()])


ASKS_TO_STOP = """
import os, signal, time

os.kill(os.getppid(), signal.SIGTERM)
time.sleep(600)
"""


def test_up_asked_to_stop_while_it_starts_stops_everything_and_exits_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asks_to_stop.py").write_text(ASKS_TO_STOP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = ServiceCommand(name="data-service", module="asks_to_stop", options=())
    monkeypatch.setattr(services, "data_service", lambda **_: command)
    assert main(["up", "--workers", "1", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "s")]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "interrupted while data-service was starting" in captured.err
    assert not descendants([os.getpid()])
