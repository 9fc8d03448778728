"""takt up"""

from typing import Annotated

import typer
from takt.rpc.address import parse_listen

from coordinator.cli import services
from coordinator.cli.console import print_line, print_remark
from coordinator.cli.exits import ExitCode
from coordinator.cli.interrupts import Interrupts
from coordinator.cli.local import local_supervisor, start_services
from coordinator.cli.options import DEFAULT_COORDINATOR, DEFAULT_STATE_DIR, StateDir
from coordinator.cli.supervisor import StartInterruptedError

Workers = Annotated[int, typer.Option("--workers", min=1, metavar="N", help="Worker slots to offer.")]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        envvar="TAKT_LISTEN",
        metavar="HOST:PORT",
        help="Loopback address of the coordinator; port 0 takes any.",
    ),
]
TEND_SECONDS = 0.25
COORDINATOR_STOP_SECONDS = 26.0
"""What the coordinator gets to stop: it gives its jobs 20 s to reach a step boundary and to save their state."""
STOP_SECONDS = 2.0
"""What agents and data service, which have nothing to do by then, get each."""


def command(
    *, workers: Workers, listen: Listen = DEFAULT_COORDINATOR, state_dir: StateDir = DEFAULT_STATE_DIR
) -> ExitCode:
    """Keep a coordinator, a data service and N workers running on this machine.

    Prints the coordinator's address as the first line on stdout once all of them are ready, and stays until
    SIGINT or SIGTERM (exit code 0). A second one kills at once. A service that dies is started again on its
    port, at most 5 times a minute. Logs: STATE_DIR/services/.
    """
    parse_listen(listen).check_free()  # before anything is started
    state_dir = state_dir.resolve()
    with Interrupts() as interrupts:
        supervisor = local_supervisor(state_dir, interrupts)
        try:
            address, announcements = start_services(supervisor, state_dir=state_dir, num_workers=workers, listen=listen)
            print_line(address)
            for announcement in announcements:
                print_remark(str(announcement))
            print_remark(f"logs in {supervisor.log_dir}; Ctrl-C stops everything")
            while not interrupts.count:
                supervisor.tend()
                interrupts.pause(TEND_SECONDS)
            print_remark("stopping; another Ctrl-C kills at once")
        except StartInterruptedError as error:
            print_remark(str(error))
        finally:
            # First, while its jobs have workers and rows: they save and go on later, and no worker is blamed.
            supervisor.stop_before_others(
                services.COORDINATOR,
                grace_seconds=COORDINATOR_STOP_SECONDS,
                should_kill=lambda: interrupts.count > 1,
            )
            supervisor.stop(grace_seconds=STOP_SECONDS, should_kill=lambda: interrupts.count > 1)
    return ExitCode.SUCCESS
