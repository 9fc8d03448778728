"""The coordinator as one process: its parts put together, started and stopped."""

import asyncio
import contextlib
import functools
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import grpc.aio
import structlog
from prometheus_client import CollectorRegistry
from takt.rpc.address import parse_listen
from takt.rpc.lifecycle import announce, until_stopped
from takt.rpc.metrics import HttpEndpoint, build_info, rpc_counter
from takt.rpc.server import RunningServer, serve
from takt.v1 import jobs_pb2_grpc, workers_pb2_grpc

from coordinator import jobs_servicer, workers_servicer
from coordinator.adoption import Adoption
from coordinator.agents import Agents
from coordinator.attendance import Attendance
from coordinator.data_client import DataClient
from coordinator.files import JobFiles
from coordinator.jobs import Jobs
from coordinator.jobs_servicer import JobServicer
from coordinator.journal import Journal
from coordinator.membership import SlotState
from coordinator.metrics import Census, RunMetrics
from coordinator.ownership import BEAT_SECONDS, Ownership
from coordinator.queue import Queue
from coordinator.records import JobState
from coordinator.run_services import RunServices
from coordinator.runs import Runs
from coordinator.store import LostError, Store
from coordinator.workers_servicer import WorkerServicer

TICK_SECONDS = 0.5
STOP_GRACE_SECONDS = 20.0
"""What runs get to reach a step boundary and to save their state when the coordinator is stopped."""
EMBEDDED_STOP_GRACE_SECONDS = 3.0
"""The same where they are cancelled, because the `takt run` that they belong to ends."""
STOP_MARGIN_SECONDS = 4.0
"""What their workers get to end then."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a coordinator is started with."""

    listen: str
    """host:port of the gRPC server."""
    state_dir: Path
    data_service: str
    """host:port of the data service."""
    metrics_port: int
    strict: bool
    """One command at a time."""
    credit: int
    """Steps that workers may be ahead of the last commit."""
    embedded: bool
    """Serves one `takt run`: leaves no jobs behind."""
    run: str = ""
    """Identity of that `takt run`, whose jobs are taken over where an earlier process served it; empty for none."""
    insecure: bool
    """May listen where other machines can reach it."""

    def check_free(self) -> None:
        """See whether the addresses can be listened on.

        Raises:
            ListenError: one cannot.
            AddressInUseError: another process listens there.
        """
        address = parse_listen(self.listen, insecure=self.insecure)
        for port in (address.port, self.metrics_port):
            replace(address, port=port).check_free()


class Coordinator:
    """All parts of one coordinator."""

    def __init__(self, settings: Settings, ownership: Ownership) -> None:
        self._settings = settings
        self._ownership = ownership
        self._registry = CollectorRegistry()
        self._journal = Journal(
            functools.partial(Store.open, settings.state_dir, owner=ownership.owner, needs_lease=not settings.embedded)
        )
        self._agents = Agents()
        self._data = DataClient(settings.data_service)
        services = RunServices(
            agents=self._agents,
            data=self._data,
            journal=self._journal,
            metrics=RunMetrics(self._registry),
            strict=settings.strict,
            credit=settings.credit,
        )
        self._runs = Runs()
        self._queue = Queue(state_dir=settings.state_dir, services=services, runs=self._runs)
        self._attendance = Attendance(agents=self._agents, runs=self._runs, queue=self._queue)
        self._adoption = Adoption(
            state_dir=settings.state_dir, ownership=ownership, services=services, queue=self._queue
        )
        self._jobs = Jobs(
            state_dir=settings.state_dir,
            ownership=ownership,
            services=services,
            queue=self._queue,
            runs=self._runs,
            adoption=self._adoption,
            embedded=settings.embedded,
        )
        self._stopping = False
        self._server: RunningServer | None = None
        self._http: HttpEndpoint | None = None
        self._time: asyncio.Task[None] | None = None
        self._lease: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, str]:
        """Start everything; return the addresses of the gRPC server and of the metrics.

        Raises:
            StoreError: the job store cannot be opened.
            ListenError: an address cannot be listened on.
            AddressInUseError: another process listens there.
        """
        await self._journal.open()
        if not self._settings.embedded:
            self._lease = asyncio.create_task(self._keep_lease())
        build_info(self._registry, version("takt-train"))
        self._registry.register(Census(jobs=self._count_jobs, slots=self._count_slots))
        if self._settings.run or not self._settings.embedded:
            # Before workers can ask for runs that are not there yet.
            await self._adoption.adopt_all(of_run=self._settings.run if self._settings.embedded else None)
        self._server = await serve(
            self._settings.listen,
            add=self._add_servicers,
            services=(jobs_servicer.SERVICE_NAME, workers_servicer.SERVICE_NAME),
            status={**jobs_servicer.STATUS, **workers_servicer.STATUS},
            insecure=self._settings.insecure,
            on_handled=rpc_counter(self._registry),
        )
        host = self._settings.listen.rpartition(":")[0].strip("[]")
        self._http = HttpEndpoint(self._registry, host=host, port=self._settings.metrics_port, ready=self._ready)
        metrics_address = self._http.start()
        self._ownership.publish(self._server.address)
        if not self._settings.embedded:
            await self._beat()
        self._time = asyncio.create_task(self._keep_time())
        return self._server.address, metrics_address

    async def stop(self, reason: str) -> None:
        """End all runs and stop serving; a second time nothing is left to do."""
        if self._stopping:
            return
        self._stopping = True
        _log.info("coordinator stops", reason=reason)
        if self._time is not None:
            grace_seconds = EMBEDDED_STOP_GRACE_SECONDS if self._settings.embedded else STOP_GRACE_SECONDS
            await self._queue.stop(
                "the coordinator was stopped",
                grace_seconds=grace_seconds,
                limit_seconds=grace_seconds + STOP_MARGIN_SECONDS,
                drop_waiting=self._settings.embedded,
            )
        await self.leave()

    @property
    def lost(self) -> asyncio.Future[LostError]:
        """Done, with what happened, once another coordinator has taken over what this one writes."""
        return self._journal.lost

    async def leave(self) -> None:
        """Stop serving at once; runs are left as they are, for whoever has them now."""
        self._stopping = True
        for task in (self._time, self._lease):
            if task is not None:
                task.cancel()
        self._agents.close()
        if self._server is not None:
            await self._server.stop(0.5)
        if self._http is not None:
            self._http.close()
        await self._data.close()
        await self._journal.close()

    async def _keep_time(self) -> None:
        while True:
            await self._queue.wait_for_change(limit_seconds=TICK_SECONDS)
            try:
                self._attendance.expire()
                self._runs.tick()
                if not self._stopping:
                    await self._queue.admit()
            except Exception:
                _log.exception("slots, runs or the queue could not be looked at; this is tried again")
                await asyncio.sleep(TICK_SECONDS)

    async def _keep_lease(self) -> None:
        while True:
            try:
                await self._beat()
            except sqlite3.OperationalError as error:
                _log.warning("the lease of the state folder cannot be renewed; this is tried again", reason=str(error))
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self) -> None:
        address = "" if self._server is None else self._server.address
        await self._journal.do(lambda store: store.beat(address, now=time.time()))

    def _add_servicers(self, server: grpc.aio.Server) -> None:
        files = JobFiles(self._settings.state_dir / "jobs")
        jobs = JobServicer(jobs=self._jobs, agents=self._agents, runs=self._runs, files=files)
        jobs_pb2_grpc.add_JobServiceServicer_to_server(jobs, server)
        workers_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(self._attendance), server)

    def _ready(self) -> tuple[bool, str]:
        return (False, "the coordinator stops") if self._stopping else (True, "jobs are accepted")

    def _count_jobs(self) -> Mapping[JobState, int]:
        # From the scraping thread, so with a connection of its own.
        with contextlib.closing(Store.open_read_only(self._settings.state_dir)) as store:
            counts = store.count_by_state()
        return {state: counts.get(state, 0) for state in JobState}

    def _count_slots(self) -> Mapping[SlotState, int]:
        counts = Counter(slot.state for slot in self._agents.membership.slots)
        return {state: counts[state] for state in SlotState}


async def serve_until_stopped(settings: Settings, ownership: Ownership, *, exit_with_stdin: bool) -> None:
    """Run a coordinator until the process is asked to stop.

    Raises:
        TaktError: it could not be started.
        LostError: another coordinator has taken over its folder, or one of its jobs.
    """
    stopped = until_stopped(exit_with_stdin=exit_with_stdin)
    coordinator = Coordinator(settings, ownership)
    serving = asyncio.create_task(_serve(coordinator, settings.state_dir, stopped))
    lost = coordinator.lost
    lost.add_done_callback(lambda _: serving.cancel())
    try:
        await serving
    except asyncio.CancelledError:
        if not lost.done():
            raise
        await coordinator.leave()
        raise lost.result() from None


async def _serve(coordinator: Coordinator, state_dir: Path, stopped: asyncio.Future[str]) -> None:
    try:
        address, metrics_address = await coordinator.start()
        announce("coordinator", address, metrics_address)
        _log.info("coordinator serves", address=address, state_dir=str(state_dir))
        reason = await stopped
    except Exception:
        await coordinator.stop("it could not be started")
        raise
    await coordinator.stop(reason)
