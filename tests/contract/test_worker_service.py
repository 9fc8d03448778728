"""The agent's process: what it prints, serves, and exits with."""

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from takt.rpc.lifecycle import Announcement, parse_announcement

pytestmark = pytest.mark.timeout(60)
NOBODY = "127.0.0.1:1"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "stage_worker", "--coordinator", NOBODY, "--standby", "0", *options]
        process = subprocess.Popen(
            [*command, "--state-dir", str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TAKT_METRICS_PORT": "0"},
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def announcement(process: subprocess.Popen[str]) -> Announcement:
    """Return what the process says once it is ready."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    assert process.stdout is not None
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()  # type: ignore[union-attr]
    found = parse_announcement(lines.get(timeout=30))
    assert found is not None
    return found


def fetch(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_agent_process_serves_probes_and_metrics_before_it_has_found_a_coordinator(start: Start) -> None:
    said = announcement(start())
    assert said.service == "stage_worker"
    assert fetch(said.metrics_address, "/livez")[0] == 200
    assert fetch(said.metrics_address, "/readyz") == (503, "no executor is at work: no job has run here yet\n")
    status, text = fetch(said.metrics_address, "/metrics")
    assert status == 200
    assert "takt_build_info{" in text
    assert "takt_stage" not in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_agent_process_told_to_stop_exits_0(number: signal.Signals, start: Start) -> None:
    process = start()
    announcement(process)
    process.send_signal(number)
    assert process.wait(timeout=20) == 0


def test_agent_process_stops_with_its_stdin_where_asked_to(start: Start) -> None:
    process = start("--exit-with-stdin")
    announcement(process)
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert process.wait(timeout=20) == 0


def test_agent_process_without_a_coordinator_exits_5_and_names_the_address(start: Start) -> None:
    process = start("--wait-seconds", "0.5")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 5
    assert f"\nerror: no coordinator answered at {NOBODY} for 0.5 s" in f"\n{errors}"
    assert "Traceback" not in errors


def test_agent_process_metrics_port_in_use_exits_5_and_names_it(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = start("--metrics-port", str(port))
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 5
    assert errors.startswith("error: address in use")
    assert f"127.0.0.1:{port}" in errors
    assert output == ""


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--device", "tpu", "--device is 'tpu', need one of cpu, cuda, cuda:N"),
        ("--transport", "mpi", "--transport is 'mpi', need one of auto, gloo, nccl"),
        ("--slot", "-1", "--slot is -1, need 0 or more"),
        ("--coordinator", "nowhere", "--coordinator is 'nowhere', need HOST:PORT"),
        ("--advertise", "10.0.0.1", "pass --insecure to accept that"),
    ],
)
def test_agent_process_bad_setting_exits_2_with_one_line(option: str, value: str, complaint: str, start: Start) -> None:
    process = start(option, value)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert output == ""
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert complaint in errors
