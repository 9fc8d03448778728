"""The services of one machine, started in an order in which each finds the one before it."""

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from takt.rpc.address import listen_failure, parse_listen
from takt.rpc.lifecycle import Announcement

from coordinator.cli import services
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.supervisor import Supervisor


def start_services(
    supervisor: Supervisor,
    *,
    state_dir: Path,
    num_workers: int,
    listen: str = services.ANY_PORT,
    strict: bool = False,
    embedded: bool = False,
) -> tuple[str, list[Announcement]]:
    """Start a data service, a coordinator and agents; return the coordinator's address, and what all announced."""
    (data,) = supervisor.start([services.data_service(state_dir=state_dir)])
    (beat,) = supervisor.start(
        [
            services.coordinator(
                state_dir=state_dir,
                data_service_address=str(data.address),
                listen=listen,
                strict=strict,
                embedded=embedded,
            )
        ]
    )
    address = str(beat.address)
    agents = supervisor.start(
        [services.agent(slot=slot, state_dir=state_dir, coordinator_address=address) for slot in range(num_workers)]
    )
    return address, [data, beat, *agents]


def new_log_dir(state_dir: Path) -> Path:
    """Make and return the folder for the service logs of this process.

    Raises:
        CliError: the state folder cannot be written.
    """
    folder = state_dir / "services" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        message = f"--state-dir {state_dir} cannot be written: {error.strerror or error}; choose another folder"
        raise CliError(ExitCode.INVALID, message) from error
    return folder


def refuse_port_in_use(listen: str) -> None:
    """Find out early, before anything is started.

    Raises:
        ListenError: the address is malformed or not on loopback.
        AddressInUseError: another process listens there.
    """
    address = parse_listen(listen)
    family = socket.AF_INET6 if ":" in address.numeric else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.numeric, address.port))
            probe.listen()
        except OSError as error:
            raise listen_failure(listen, error) from error
