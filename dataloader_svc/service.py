"""Runs the data service in one process until it is asked to stop."""

import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import grpc.aio
import structlog
from prometheus_client import CollectorRegistry
from takt.rpc.address import parse_listen
from takt.rpc.lifecycle import announce, until_stopped
from takt.rpc.metrics import HttpEndpoint, build_info, rpc_counter
from takt.rpc.server import serve
from takt.v1.data_pb2_grpc import add_DataServiceServicer_to_server

from dataloader_svc.metrics import DataMetrics
from dataloader_svc.servicer import SERVICE_NAME, STATUS, DataServicer
from dataloader_svc.store import Datasets

GRACE_SECONDS = 2.0
"""What calls in progress get at the end; any of them can be repeated."""
SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter where others want it. A read takes several turns; at Python's 5 ms its
tail is some times as long while another job's split is tokenised."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How one data service runs."""

    listen: str
    """host:port; port 0 takes any."""
    state_dir: Path
    """Folder that the coordinator writes jobs into; need not be there yet."""
    metrics_port: int
    """On the host of ``listen``; 0 takes any."""
    allow_roots: tuple[Path, ...]
    """Folders that the paths of a job must lie under; none given: all on loopback, none elsewhere."""
    exit_with_stdin: bool
    insecure: bool
    """Whether a host that others can reach is accepted."""


async def run_service(options: ServiceOptions) -> None:
    """Serve until SIGTERM, SIGINT or the end of stdin.

    Raises:
        ListenError: the address is not allowed or not known here.
        AddressInUseError: another process listens on one of the two ports.
    """
    address = parse_listen(options.listen, insecure=options.insecure)
    roots = options.allow_roots or ((Path("/"),) if address.is_loopback else ())
    registry = CollectorRegistry()
    build_info(registry, version("takt-train"))
    datasets = Datasets(state_dir=options.state_dir.absolute(), roots=roots, metrics=DataMetrics(registry))
    servicer = DataServicer(datasets)

    def add(server: grpc.aio.Server) -> None:
        add_DataServiceServicer_to_server(servicer, server)

    sys.setswitchinterval(SWITCH_SECONDS)
    stopped = until_stopped(exit_with_stdin=options.exit_with_stdin)
    server = await serve(
        options.listen,
        add=add,
        services=[SERVICE_NAME],
        status=STATUS,
        insecure=options.insecure,
        on_handled=rpc_counter(registry),
    )
    endpoint = HttpEndpoint(
        registry, host=address.host, port=options.metrics_port, ready=lambda: (not stopped.done(), "serving")
    )
    try:
        announce("dataloader_svc", server.address, endpoint.start())
        reason = await stopped
        _log.info("data service stops", reason=reason)
    finally:
        await server.stop(GRACE_SECONDS)
        datasets.close()
        endpoint.close()
