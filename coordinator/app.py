"""The command line of the coordinator: flags in, exit code out."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from takt.rpc import logs
from takt.rpc.errors import AddressInUseError, TaktError

from coordinator.ownership import FolderInUseError, Ownership
from coordinator.service import Settings, serve_until_stopped
from coordinator.store import LostError

USAGE_EXIT = 2
FOLDER_EXIT = 4
ADDRESS_EXIT = 5

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def serve(
    listen: Annotated[
        str, typer.Option(envvar="TAKT_LISTEN", help="Address to listen on, HOST:PORT; port 0 takes any.")
    ] = "127.0.0.1:7700",
    state_dir: Annotated[
        Path, typer.Option(envvar="TAKT_STATE_DIR", help="State folder shared with agents and the data service.")
    ] = Path("takt-state"),
    data_service: Annotated[
        str, typer.Option(envvar="TAKT_DATA_SERVICE", help="Address of the data service, as executors reach it too.")
    ] = "127.0.0.1:7710",
    metrics_port: Annotated[
        int, typer.Option(envvar="TAKT_METRICS_PORT", min=0, max=65535, help="Port of /metrics, /livez and /readyz.")
    ] = 7701,
    strict: Annotated[
        bool, typer.Option("--strict", envvar="TAKT_STRICT", help="Send one command at a time; slow, for debugging.")
    ] = False,
    credit: Annotated[
        int, typer.Option(envvar="TAKT_CREDIT", min=1, max=64, help="Steps sent ahead of the last finished one.")
    ] = 2,
    embedded: Annotated[
        bool, typer.Option("--embedded", envvar="TAKT_EMBEDDED", help="Serve one 'takt run': share the state folder.")
    ] = False,
    run: Annotated[str, typer.Option(envvar="TAKT_RUN", help="Identity of that 'takt run', kept over restarts.")] = "",
    exit_with_stdin: Annotated[
        bool, typer.Option("--exit-with-stdin", envvar="TAKT_EXIT_WITH_STDIN", help="Stop when stdin closes.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", envvar="TAKT_INSECURE", help="Listen where other machines can reach it.")
    ] = False,
) -> None:
    """Queue jobs, give them slots of stage workers, and beat time for their steps."""
    host, _, port = data_service.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"--data-service is {data_service!r}, need HOST:PORT with a port from 1 to 65535")
    logs.configure(service="coordinator")
    settings = Settings(
        listen=listen,
        state_dir=state_dir.absolute(),
        data_service=data_service,
        metrics_port=metrics_port,
        strict=strict,
        credit=credit,
        embedded=embedded,
        run=run,
        insecure=insecure,
    )
    ownership = Ownership.claim(settings.state_dir, embedded=embedded, run=run, before_takeover=settings.check_free)
    try:
        asyncio.run(serve_until_stopped(settings, ownership, exit_with_stdin=exit_with_stdin))
    finally:
        ownership.release()


def main() -> int:
    """Run the program; return its exit code: 2 for wrong use, 4 for another's folder, 5 for an address in use."""
    try:
        app(prog_name="python -m coordinator")
    except (TaktError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        match error:
            case FolderInUseError() | LostError():
                return FOLDER_EXIT
            case AddressInUseError():
                return ADDRESS_EXIT
        return USAGE_EXIT
    return 0
