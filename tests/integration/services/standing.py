"""``takt up`` and the commands that talk to it."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from takt.rpc.lifecycle import Announcement, parse_announcement
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.client import connect
from coordinator.cli.documents import job_record, slot_record
from coordinator.cli.outcome import has_ended, watch
from tests.integration.services.endpoint import Answer, ask, of_run, samples
from tests.integration.services.faults import Faults
from tests.integration.services.programs import Finished, Program, start_takt, takt
from tests.integration.services.waiting import wait_until

UP_SECONDS = 40.0
FREE_SECONDS = 15.0
ORPHAN_SECONDS = 5.0
FINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


class Standing:
    """A coordinator, a data service and some agents, as ``takt up`` started them."""

    def __init__(self, command: Program, *, num_services: int, state_dir: Path, faults: Faults) -> None:
        """Wait until ``command`` and each of its services say where they are."""
        self.command = command
        self.state_dir = state_dir
        self.faults = faults
        self.address = command.next_line()
        logs = state_dir / "services"

        def announced() -> dict[str, Announcement] | None:
            found = {
                log.stem: announcement
                for log in logs.glob("*/*.log")
                for line in log.read_text().splitlines()
                if (announcement := parse_announcement(line)) is not None
            }
            return found if len(found) == num_services else None

        self.services = wait_until("all services are ready", announced, limit_seconds=UP_SECONDS)
        """What each service announced, by name: data-service, coordinator, agent-0, ..."""

    @property
    def metrics_addresses(self) -> dict[str, str]:
        """Where each service's HTTP endpoint is."""
        return {name: announcement.metrics_address for name, announcement in self.services.items()}

    def takt(self, *arguments: object, limit_seconds: float = 120.0) -> Finished:
        """Run a command against this coordinator."""
        return takt(*arguments, env={"TAKT_COORDINATOR": self.address}, limit_seconds=limit_seconds)

    def begin(self, *arguments: object) -> Program:
        """Start a command against this coordinator."""
        return start_takt(*arguments, env={"TAKT_COORDINATOR": self.address})

    def submit(self, job_file: Path, job: str) -> str:
        """Give it a job; return the job's id."""
        finished = self.takt("submit", job_file, "--id", job)
        assert (finished.code, finished.out) == (0, f"{job}\n"), finished.err
        return job

    def status(self, job: str) -> dict[str, Any]:
        """Return what ``takt status --output json`` prints."""
        return self.takt("status", job, "--output", "json").document

    def look_at(self, job: str) -> dict[str, Any]:
        """Return the same as ``status``, without starting a program."""
        with connect(self.address) as client:
            return job_record(client.job(job))

    def slots(self) -> list[dict[str, Any]]:
        """Return the slots as ``takt workers --output json`` prints them, without starting a program."""
        with connect(self.address) as client:
            return [slot_record(slot) for slot in client.workers()]

    def jobs(self) -> set[str]:
        """Return the ids of all jobs."""
        with connect(self.address) as client:
            return {job.id for job in client.jobs(pb.ListJobsRequest()).jobs}

    def end_all(self) -> None:
        """Cancel what has not ended, and wait for its end."""
        with connect(self.address) as client:
            for job in client.jobs(pb.ListJobsRequest()).jobs:
                if not has_ended(job):
                    client.cancel(job.id, grace_seconds=1)
                    watch(client, job.id, on_change=lambda _: None, timeout_seconds=20)

    def in_state(self, job: str, *states: str, limit_seconds: float) -> dict[str, Any]:
        """Wait until a job is in one of ``states``; return its status."""

        def look() -> dict[str, Any] | None:
            status = self.look_at(job)
            assert status["state"] in states or status["state"] not in FINAL, status["reason"]
            return status if status["state"] in states else None

        return wait_until(f"job {job} is {' or '.join(states)}", look, limit_seconds=limit_seconds)

    def end_of(self, job: str, *, limit_seconds: float = 120.0) -> dict[str, Any]:
        """Wait for a job's end with ``takt wait``; return its status."""
        finished = self.takt("wait", job, "--output", "json", limit_seconds=limit_seconds)
        return finished.document

    def agent_of(self, job: str, *, worker: int) -> str:
        """Return the name of the agent whose slot a job's worker has now."""
        taken = {slot["worker"]: slot["slot"] for slot in self.slots() if slot["job"] == job}
        return f"agent-{taken[worker]}"

    def pid_of(self, service: str) -> int:
        """Return the process id of a service, by the log that it writes to."""
        (log,) = (self.state_dir / "services").glob(f"*/{service}.log")
        (pid,) = (child for child in children(self.command.pid) if Path(f"/proc/{child}/fd/2").resolve() == log)
        return pid

    def probe(self, service: str, path: str) -> Answer:
        """Ask a service's HTTP endpoint."""
        return ask(self.metrics_addresses[service], path)

    def folder(self, job: str) -> Path:
        """Return the folder of a job's files."""
        return self.state_dir / "jobs" / job

    def assert_clean(self, *jobs: str) -> None:
        """Hold that no slot is taken, and no executor, and no series of ``jobs`` is left.

        Only the end of processes that have been killed, or have lost their agent, is waited for.
        """

        def all_free() -> bool:
            return all(slot["state"] == "free" and slot["job"] is None for slot in self.slots())

        wait_until("all slots are free", all_free, limit_seconds=FREE_SECONDS)
        for job in jobs:
            for worker in self.look_at(job)["workers"]:
                ended = partial(has_ended_process, worker["pid"])
                wait_until(f"the end of executor {worker} of job {job}", ended, limit_seconds=ORPHAN_SECONDS)
            for address in self.metrics_addresses.values():
                assert of_run(samples(address), job) == []


@contextmanager
def takt_up(
    folder: Path,
    *,
    num_workers: int,
    listen: str = "127.0.0.1:0",
    env: Mapping[str, str] | None = None,
    stop_seconds: float = 10,
) -> Iterator[Standing]:
    """Keep services running; hold that Ctrl-C ends all of them within 10 seconds and frees their ports.

    ``stop_seconds`` is more where a job stands still, which is waited for.
    """
    state_dir, faults = folder / "state", Faults(folder / "faults")
    options = ("--workers", num_workers, "--listen", listen, "--state-dir", state_dir)
    with start_takt("up", *options, env={**faults.environment, **(env or {})}) as command:
        standing = Standing(command, num_services=num_workers + 2, state_dir=state_dir, faults=faults)
        yield standing
        command.interrupt()
        finished = command.end(limit_seconds=stop_seconds)
        assert finished.code == 0, finished.err
    for announcement in standing.services.values():
        for address in filter(None, (announcement.address, announcement.metrics_address)):
            assert not listens(address), f"somebody listens on {address}"


def children(pid: int) -> list[int]:
    """Return the processes that one process has started itself."""
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def has_ended_process(pid: int) -> bool:
    """Whether a process is gone, or dead and not yet reaped: an orphan is reaped by process 1, in its own time."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def listens(address: str) -> bool:
    """Whether a connection to host:port is accepted."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a .jsonl file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
