"""Ports that are taken, and services that start in any order."""

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from takt.rpc.lifecycle import parse_announcement

from coordinator.cli.client import connect
from tests.integration.services.programs import Finished, Program, start_service, takt
from tests.integration.services.standing import Standing
from tests.integration.services.waiting import wait_until

pytestmark = pytest.mark.timeout(90)

REFUSAL_SECONDS = 10.0


@pytest.fixture
def foreign_address() -> Iterator[str]:
    """Return an address that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def ended(module: str, *options: object) -> Finished:
    """Run a service that must not start."""
    with start_service(module, *options) as service:
        return service.end(limit_seconds=REFUSAL_SECONDS)


def agent(state_dir: Path, coordinator: str, *options: object) -> tuple[str, ...]:
    """Return the options of an agent that keeps no executor warm."""
    where = ("--coordinator", coordinator, "--state-dir", state_dir, "--standby", 0)
    return tuple(map(str, (*where, *options)))


def test_h84_second_coordinator_on_a_port_is_refused_and_the_first_serves_all(up: Standing, tmp_path: Path) -> None:
    options = ("--listen", up.address, "--metrics-port", 0, "--state-dir", tmp_path / "second")
    second = ended("coordinator", *options)
    assert (second.code, second.seconds < REFUSAL_SECONDS) == (5, True)
    assert f"address in use: another process listens on {up.address}" in second.err
    with connect(up.address) as client:
        assert [len(client.workers()) for _ in range(20)] == [4] * 20


def test_h84_second_up_on_a_port_is_refused(up: Standing, tmp_path: Path) -> None:
    second = takt("up", "--workers", 1, "--listen", up.address, "--state-dir", tmp_path / "s", limit_seconds=10)
    assert (second.code, second.out) == (5, "")
    assert up.address in second.err
    assert not (tmp_path / "s").exists()


def test_h84_second_up_on_a_state_folder_is_refused(up: Standing) -> None:
    second = takt("up", "--workers", 1, "--listen", "127.0.0.1:0", "--state-dir", up.state_dir, limit_seconds=20)
    assert (second.code, second.out) == (4, "")
    assert str(up.state_dir) in second.err


def test_h84_second_worker_on_a_metrics_port_is_refused(up: Standing, tmp_path: Path) -> None:
    port = up.metrics_addresses["agent-0"].rpartition(":")[2]
    second = ended("stage_worker", *agent(tmp_path, up.address, "--slot", 9, "--metrics-port", port))
    assert (second.code, port in second.err, "address in use" in second.err) == (5, True, True)
    assert len(up.slots()) == 4


@pytest.mark.parametrize("service", ["coordinator", "dataloader_svc", "stage_worker", "up"])
def test_h102_port_that_a_foreign_process_holds_is_named(service: str, tmp_path: Path, foreign_address: str) -> None:
    port = foreign_address.rpartition(":")[2]
    match service:
        case "up":
            options = ("up", "--workers", 1, "--listen", foreign_address, "--state-dir", tmp_path / "s")
            refused = takt(*options, limit_seconds=REFUSAL_SECONDS)
        case "stage_worker":
            refused = ended("stage_worker", *agent(tmp_path, "127.0.0.1:1", "--metrics-port", port))
        case _:
            listen = ("--listen", foreign_address, "--metrics-port", 0, "--state-dir", tmp_path / "s")
            refused = ended(service, *listen)
    assert refused.code == 5
    assert foreign_address in refused.err
    assert "Traceback" not in refused.err


def test_h105_agents_wait_for_their_coordinator_and_join(tmp_path: Path) -> None:
    with socket.socket() as probe:  # a port that nobody listens on, as long as nobody takes it
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    state = ("--state-dir", tmp_path / "state")
    programs: list[Program] = []
    try:
        for slot in (0, 1):
            options = agent(tmp_path / "state", address, "--slot", slot, "--metrics-port", 0, "--wait-seconds", 40)
            programs.append(start_service("stage_worker", *options))
        for program in programs:
            announced = parse_announcement(program.next_line())
            assert announced is not None
            assert announced.service == "stage_worker"
        programs.append(start_service("coordinator", "--listen", address, "--metrics-port", 0, *state))
        assert parse_announcement(programs[-1].next_line()) is not None

        def slots() -> int:
            with connect(address) as client:
                return len(client.workers())

        wait_until("both agents have joined", lambda: slots() == 2, limit_seconds=15)
        for program in programs:
            program.signal(signal.SIGTERM)
        for program in programs:
            finished = program.end(limit_seconds=10)
            assert finished.code == 0, finished.err
    finally:
        for program in programs:
            program.close()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "takt.invalid:7700"])
def test_h105_agent_without_a_coordinator_gives_up_naming_it(tmp_path: Path, address: str) -> None:
    finished = ended("stage_worker", *agent(tmp_path, address, "--metrics-port", 0, "--wait-seconds", 2))
    assert finished.code == 5
    assert finished.seconds > 2
    assert address in finished.err
    assert "Traceback" not in finished.err


def test_h105_agent_waits_until_the_name_of_its_coordinator_resolves(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Ur", "--mount", "true"], check=False).returncode:
        pytest.skip("no user and mount namespaces here")
    hosts = tmp_path / "hosts"  # the agent's /etc/hosts, as a cluster's name service would be
    hosts.write_text("127.0.0.1 localhost\n")
    where = ("--listen", "127.0.0.1:0", "--metrics-port", 0, "--state-dir", tmp_path / "state")
    with start_service("coordinator", *where) as coordinator:
        announced = parse_announcement(coordinator.next_line())
        assert announced is not None
        address = str(announced.address)
        named = f"takt-late.test:{address.rpartition(':')[2]}"
        options = agent(tmp_path / "state", named, "--metrics-port", 0, "--wait-seconds", 60)
        told = tmp_path / "agent.log"
        script = 'mount --bind "$0" /etc/hosts && log=$1 && shift && exec "$@" 2>"$log"'
        mounted = [unshare, "-Ur", "--mount", "sh", "-c", script, hosts, told]

        def slots() -> int:
            with connect(address) as client:
                return len(client.workers())

        with Program([*mounted, sys.executable, "-m", "stage_worker", *options]) as waiting:
            assert parse_announcement(waiting.next_line()) is not None
            # It announces itself before it dials; the name must not be there at its first try.
            refused = "coordinator does not answer yet"
            wait_until("the agent has tried", lambda: refused in told.read_text(), limit_seconds=20)
            assert slots() == 0
            hosts.write_text("127.0.0.1 localhost takt-late.test\n")
            wait_until("the agent has joined", lambda: slots() == 1, limit_seconds=40)
            waiting.signal(signal.SIGTERM)
            finished = waiting.end(limit_seconds=10)
        assert finished.code == 0, told.read_text()
        coordinator.signal(signal.SIGTERM)
        assert coordinator.end(limit_seconds=10).code == 0
