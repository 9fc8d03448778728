"""The services of one machine, started in an order in which each finds the one before it."""

import os
from datetime import UTC, datetime
from pathlib import Path

from takt.rpc.lifecycle import Announcement

from coordinator.cli import services
from coordinator.cli.console import print_remark
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.interrupts import Interrupts
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


def local_supervisor(state_dir: Path, interrupts: Interrupts) -> Supervisor:
    """Return a supervisor of this machine's services that stops starting them once the user asks to stop.

    Raises:
        CliError: the state folder cannot be written.
    """
    return Supervisor(
        log_dir=_new_log_dir(state_dir),
        pause=interrupts.pause,
        on_remark=print_remark,
        should_stop=lambda: interrupts.count > 0,
    )


def _new_log_dir(state_dir: Path) -> Path:
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
