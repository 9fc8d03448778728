"""How each service is started on this machine."""

import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from takt.rpc.lifecycle import Announcement

ANY_PORT = "127.0.0.1:0"
COORDINATOR = "coordinator"
"""Name of the coordinator among the services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCommand:
    """One service's command line; ``fixed_at`` gives the one that a restart uses."""

    name: str
    """Of its log file, for instance agent-0."""
    module: str
    options: tuple[str, ...]
    listen: str | None = None
    """host:port of its gRPC server; None for a service that only dials."""
    metrics_port: int = 0
    one_thread: bool = False
    """Whether the numeric libraries below it use one thread, unless the user's environment says otherwise."""

    @property
    def argv(self) -> list[str]:
        """The program and its arguments."""
        listen = [] if self.listen is None else ["--listen", self.listen]
        metrics = ["--metrics-port", str(self.metrics_port)]
        return [sys.executable, "-m", self.module, *listen, *metrics, *self.options, "--exit-with-stdin"]

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that it runs with."""
        defaults = {"OMP_NUM_THREADS": "1"} if self.one_thread else {}
        return {**defaults, **inherited}

    def fixed_at(self, announcement: Announcement) -> "ServiceCommand":
        """Return the command that takes the ports that the service has announced, so that its peers find it again."""
        port = int(announcement.metrics_address.rpartition(":")[2])
        return replace(self, listen=announcement.address if self.listen is not None else None, metrics_port=port)


def data_service(*, state_dir: Path) -> ServiceCommand:
    """Return the data service on any port."""
    options = ("--state-dir", os.fspath(state_dir))
    return ServiceCommand(name="data-service", module="dataloader_svc", listen=ANY_PORT, options=options)


def coordinator(
    *, state_dir: Path, data_service_address: str, listen: str = ANY_PORT, strict: bool = False, embedded: bool = False
) -> ServiceCommand:
    """Return the coordinator; an ``embedded`` one serves one `takt run` only."""
    flags = (*(["--strict"] if strict else []), *(["--embedded", "--run", uuid.uuid4().hex[:12]] if embedded else []))
    options = ("--state-dir", os.fspath(state_dir), "--data-service", data_service_address, *flags)
    return ServiceCommand(name=COORDINATOR, module="coordinator", listen=listen, options=options)


def agent(*, slot: int, state_dir: Path, coordinator_address: str) -> ServiceCommand:
    """Return the agent of one slot, on the CPU."""
    options = (
        *("--coordinator", coordinator_address, "--state-dir", os.fspath(state_dir)),
        *("--slot", str(slot), "--advertise", "127.0.0.1", "--device", "cpu"),
    )
    return ServiceCommand(name=f"agent-{slot}", module="stage_worker", options=options, one_thread=True)
