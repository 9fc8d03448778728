"""The command line of the data service: the service itself and two programs that need none."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from takt.rpc.errors import AddressInUseError, TaktError

from dataloader_svc.errors import DataServiceError

USAGE_EXIT = 2
ADDRESS_EXIT = 5

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    help="Serves the rows of jobs as microbatches. Without a command it runs the service.",
)


@app.callback()
def service(
    context: typer.Context,
    listen: Annotated[
        str, typer.Option(envvar="TAKT_LISTEN", help="Address to listen on, HOST:PORT; port 0 takes any.")
    ] = "127.0.0.1:7710",
    state_dir: Annotated[
        Path, typer.Option(envvar="TAKT_STATE_DIR", help="State folder shared with the coordinator.")
    ] = Path("takt-state"),
    metrics_port: Annotated[
        int, typer.Option(envvar="TAKT_METRICS_PORT", min=0, max=65535, help="Port of /metrics, /livez and /readyz.")
    ] = 7711,
    allow_root: Annotated[
        list[Path] | None,
        typer.Option(
            envvar="TAKT_ALLOW_ROOT",
            help="Folder that paths of jobs must lie under; repeatable. Default: / on loopback, none elsewhere.",
        ),
    ] = None,
    exit_with_stdin: Annotated[
        bool, typer.Option("--exit-with-stdin", envvar="TAKT_EXIT_WITH_STDIN", help="Stop when stdin closes.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", envvar="TAKT_INSECURE", help="Listen where other machines can reach it.")
    ] = False,
) -> None:
    """Serve the rows of jobs as microbatches. Without a command this runs the service."""
    if context.invoked_subcommand is not None:
        return
    # Only the service needs gRPC; the programs below start sooner without it.
    from takt.rpc import logs  # noqa: PLC0415

    from dataloader_svc.service import ServiceOptions, run_service  # noqa: PLC0415

    logs.configure(service="dataloader_svc")
    options = ServiceOptions(
        listen=listen,
        state_dir=state_dir,
        metrics_port=metrics_port,
        allow_roots=tuple(allow_root or ()),
        exit_with_stdin=exit_with_stdin,
        insecure=insecure,
    )
    asyncio.run(run_service(options))


@app.command()
def facts(spec: Annotated[str, typer.Argument(help="Path of a resolved job spec (JSON), or - for stdin.")]) -> None:
    """Print what a job's data look like, as JSON, or why it cannot be trained."""
    from google.protobuf.json_format import MessageToJson  # noqa: PLC0415

    from dataloader_svc.encode import encode_facts  # noqa: PLC0415
    from dataloader_svc.facts import inspect_data  # noqa: PLC0415
    from dataloader_svc.settings import parse_settings  # noqa: PLC0415

    found = encode_facts(inspect_data(parse_settings(_read(spec))))
    print(MessageToJson(found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))


@app.command()
def tokenizer(
    spec: Annotated[str, typer.Argument(help="Path of a resolved job spec (JSON), or - for stdin.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write into; made where it is missing.")],
) -> None:
    """Save a job's tokenizer as files that AutoTokenizer loads."""
    from dataloader_svc.settings import parse_settings  # noqa: PLC0415
    from dataloader_svc.tokens import open_tokenizer  # noqa: PLC0415

    open_tokenizer(parse_settings(_read(spec)).tokenizer).save(folder)


def main() -> int:
    """Run the program; return its exit code: 2 for what the caller got wrong, 5 for an address in use."""
    try:
        app(prog_name="python -m dataloader_svc", standalone_mode=True)
    except TaktError as error:
        print(f"error: {error}", file=sys.stderr)
        return ADDRESS_EXIT if isinstance(error, AddressInUseError) else USAGE_EXIT
    return 0


def _read(spec: str) -> str:
    try:
        return sys.stdin.read() if spec == "-" else Path(spec).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataServiceError(f"the job spec {spec} cannot be read: {error}") from error
