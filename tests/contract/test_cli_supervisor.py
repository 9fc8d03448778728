"""The supervisor, over real processes that play services."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.cli.exits import CliError
from coordinator.cli.processes import alive, descendants
from coordinator.cli.services import ServiceCommand
from coordinator.cli.supervisor import Supervisor

FAKE_SERVICE = '''
"""Plays a service: listens, announces, and does what its options say."""

import argparse, os, signal, socket, subprocess, sys, threading, time

parser = argparse.ArgumentParser()
parser.add_argument("--listen")
parser.add_argument("--metrics-port", type=int)
parser.add_argument("--exit-with-stdin", action="store_true")
parser.add_argument("--exit-code", type=int)
parser.add_argument("--silent", action="store_true")
parser.add_argument("--deaf", action="store_true")
parser.add_argument("--grandchild", action="store_true")
options = parser.parse_args()

print("threads", os.environ.get("OMP_NUM_THREADS"), file=sys.stderr, flush=True)
if options.exit_code is not None:
    print("error: address in use: 127.0.0.1:7700", file=sys.stderr)
    sys.exit(options.exit_code)
if options.deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.grandchild:  # in a session of its own, as an executor is
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
server = socket.create_server(("127.0.0.1", int(options.listen.rpartition(":")[2])))
if not options.silent:
    print(f"fake listening on 127.0.0.1:{server.getsockname()[1]}, metrics on 127.0.0.1:1", flush=True)
if options.exit_with_stdin:
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
time.sleep(600)
'''


class Remarks(list[str]):
    """What a supervisor said."""


@pytest.fixture
def remarks() -> Remarks:
    return Remarks()


@pytest.fixture
def supervisor(tmp_path: Path, remarks: Remarks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    (tmp_path / "fake_service.py").write_text(FAKE_SERVICE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    supervisor = Supervisor(log_dir=log_dir, pause=time.sleep, on_remark=remarks.append, should_stop=lambda: False)
    yield supervisor
    supervisor.stop(grace_seconds=5, should_kill=lambda: False)


def fake(*options: str, name: str = "fake", one_thread: bool = False) -> ServiceCommand:
    return ServiceCommand(
        name=name, module="fake_service", options=options, listen="127.0.0.1:0", one_thread=one_thread
    )


def listens(address: str | None) -> bool:
    host, _, port = str(address).rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], bool], *, tend: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        tend()
        time.sleep(0.02)


def children() -> set[int]:
    return {process.pid for process in descendants([os.getpid()])}


def test_start_returns_what_each_service_announced_and_logs_go_to_files(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    first, second = supervisor.start([fake(name="a"), fake(name="b", one_thread=True)])
    assert first.address != second.address
    assert listens(first.address)
    assert listens(second.address)
    assert (supervisor.log_dir / "b.log").read_text().startswith("threads 1\n")


def test_agents_get_one_thread_unless_the_user_chose(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    supervisor.start([fake(one_thread=True)])
    assert (supervisor.log_dir / "fake.log").read_text().startswith("threads 3\n")


@pytest.mark.parametrize(("service_code", "exit_code"), [(2, 2), (4, 4), (5, 5), (1, 5)])
def test_start_of_a_service_that_refuses_exits_with_its_code_and_its_words(
    supervisor: Supervisor, service_code: int, exit_code: int
) -> None:
    with pytest.raises(CliError, match="address in use") as raised:
        supervisor.start([fake("--exit-code", str(service_code))])
    assert raised.value.code == exit_code


def test_start_of_a_service_that_is_never_ready_is_given_up(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.cli.supervisor.READY_SECONDS", 0.5)
    with pytest.raises(CliError, match=r"fake was not ready in 0\.5 s"):
        supervisor.start([fake("--silent")])


def test_tend_starts_a_killed_service_again_on_its_port(supervisor: Supervisor, remarks: Remarks) -> None:
    (announcement,) = supervisor.start([fake()])
    (pid,) = children()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not listens(announcement.address))
    wait_until(lambda: listens(announcement.address), tend=supervisor.tend)
    assert children().isdisjoint({pid})
    assert any("fake died (signal 9)" in remark for remark in remarks)


def test_tend_gives_up_a_service_that_dies_again_and_again(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.cli.supervisor._FIRST_DELAY_SECONDS", 0.01)
    supervisor.start([fake()])

    def kill_and_tend() -> None:
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        supervisor.tend()

    with pytest.raises(CliError, match="fake died again and again"):
        wait_until(lambda: False, tend=kill_and_tend)


def test_stop_leaves_no_process_even_of_a_deaf_service_with_a_grandchild(supervisor: Supervisor) -> None:
    supervisor.start([fake("--deaf", "--grandchild")])
    family = descendants([os.getpid()])
    assert len(family) == 2
    began = time.monotonic()
    supervisor.stop(grace_seconds=0.5, should_kill=lambda: False)
    assert time.monotonic() - began < 5
    wait_until(lambda: not alive(family))


def test_stop_ends_the_last_started_first(supervisor: Supervisor) -> None:
    (first,) = supervisor.start([fake(name="first")])
    supervisor.start([fake("--deaf", name="second")])
    first_listened = []

    def kill_now() -> bool:
        first_listened.append(listens(first.address))
        return True

    supervisor.stop(grace_seconds=30, should_kill=kill_now)
    assert first_listened[0] is True
    assert not listens(first.address)


def test_stop_before_others_ends_one_service_and_leaves_the_rest(supervisor: Supervisor) -> None:
    first, second = supervisor.start([fake(name="first"), fake(name="second")])
    (third,) = supervisor.start([fake(name="third")])
    supervisor.stop_before_others("second", grace_seconds=5, should_kill=lambda: False)
    assert not listens(second.address)
    assert listens(first.address)
    assert listens(third.address)
    assert len(children()) == 2
    supervisor.stop(grace_seconds=5, should_kill=lambda: False)
    assert not children()


def test_stop_ends_a_grandchild_whose_parent_was_killed_before(supervisor: Supervisor) -> None:
    supervisor.start([fake("--grandchild")])
    supervisor.tend()
    family = descendants([os.getpid()])
    (parent,) = (process for process in family if descendants([process.pid]))
    os.kill(parent.pid, signal.SIGKILL)
    supervisor.stop(grace_seconds=1, should_kill=lambda: False)
    wait_until(lambda: not alive(family))


def test_services_end_when_the_process_that_holds_them_is_killed(tmp_path: Path, supervisor: Supervisor) -> None:
    program = tmp_path / "holder.py"
    program.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from coordinator.cli.services import ServiceCommand\n"
        "from coordinator.cli.supervisor import Supervisor\n"
        "s = Supervisor(log_dir=Path(sys.argv[1]), pause=time.sleep, on_remark=print, should_stop=lambda: False)\n"
        "(a,) = s.start([ServiceCommand(name='f', module='fake_service', options=(), listen='127.0.0.1:0')])\n"
        "print(a.address, flush=True)\n"
        "time.sleep(600)\n"
    )
    import_path = os.pathsep.join([str(tmp_path), *sys.path])
    (tmp_path / "held").mkdir()
    reader, writer = os.pipe()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, str(program), str(tmp_path / "held")],
        {**os.environ, "PYTHONPATH": import_path},
        file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)],
    )
    os.close(writer)
    with os.fdopen(reader) as stdout:
        address = stdout.readline().strip()
        assert listens(address)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        wait_until(lambda: not listens(address))
