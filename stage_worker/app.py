"""The command line of a stage worker: the agent, the executor that it starts, and a program that needs neither."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from stage_worker.config import AgentConfig, ConfigError
from stage_worker.executor_config import ExecutorConfig

USAGE_EXIT = 2

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    help="Offers one worker slot to a coordinator. Without a command it runs the slot's agent.",
)


@app.callback()
def agent(
    context: typer.Context,
    coordinator: Annotated[
        str, typer.Option(envvar="TAKT_COORDINATOR", help="Address of the coordinator, HOST:PORT.")
    ] = "127.0.0.1:7700",
    state_dir: Annotated[
        Path, typer.Option(envvar="TAKT_STATE_DIR", help="State folder shared with the coordinator.")
    ] = Path("takt-state"),
    slot: Annotated[int, typer.Option(envvar="TAKT_SLOT", help="Number of this slot on its host.")] = 0,
    advertise: Annotated[
        str, typer.Option(envvar="TAKT_ADVERTISE", help="Host that other workers reach this one by.")
    ] = "127.0.0.1",
    device: Annotated[str, typer.Option(envvar="TAKT_DEVICE", help="Device of the slot: cpu, cuda or cuda:N.")] = "cpu",
    transport: Annotated[
        str, typer.Option(envvar="TAKT_TRANSPORT", help="What moves tensors: auto, gloo or nccl.")
    ] = "auto",
    metrics_port: Annotated[
        int, typer.Option(envvar="TAKT_METRICS_PORT", help="Port of /metrics, /livez and /readyz; 0 takes any.")
    ] = 7721,
    standby: Annotated[
        int, typer.Option(envvar="TAKT_STANDBY", min=0, max=1, help="Executors kept warm for the next job.")
    ] = 1,
    wait_seconds: Annotated[
        float, typer.Option(envvar="TAKT_WAIT_SECONDS", help="How long to wait for a coordinator that does not answer.")
    ] = 60.0,
    orphan_seconds: Annotated[
        float,
        typer.Option(envvar="TAKT_ORPHAN_SECONDS", help="How long an executor may go on whose coordinator was lost."),
    ] = 60.0,
    allow_root: Annotated[
        list[Path] | None,
        typer.Option(
            envvar="TAKT_ALLOW_ROOT",
            help="Folder that models of jobs must lie under; repeatable. Default: / on loopback, none elsewhere.",
        ),
    ] = None,
    exit_with_stdin: Annotated[
        bool, typer.Option("--exit-with-stdin", envvar="TAKT_EXIT_WITH_STDIN", help="Stop when stdin closes.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", envvar="TAKT_INSECURE", help="Work where other machines can reach it.")
    ] = False,
) -> None:
    """Offer one worker slot to a coordinator. Without a command this runs the slot's agent."""
    if context.invoked_subcommand is not None:
        return
    config = AgentConfig(
        coordinator=coordinator,
        state_dir=state_dir.absolute(),
        slot=slot,
        advertise=advertise,
        device=device,
        transport=transport,
        metrics_port=metrics_port,
        standby=bool(standby),
        wait_seconds=wait_seconds,
        orphan_seconds=orphan_seconds,
        allow_roots=tuple(root.absolute() for root in allow_root or ()),
        insecure=insecure,
    )
    # The programs below need none of it and start sooner without.
    from takt.rpc import logs  # noqa: PLC0415

    from stage_worker.agent_service import serve_slot  # noqa: PLC0415

    logs.configure(service="stage_worker")
    raise typer.Exit(asyncio.run(serve_slot(config, exit_with_stdin=exit_with_stdin)))


@app.command(hidden=True)
def executor(
    coordinator: Annotated[str, typer.Option(help="Address of the coordinator, HOST:PORT.")],
    state_dir: Annotated[Path, typer.Option(help="State folder shared with the coordinator.")],
    advertise: Annotated[str, typer.Option(help="Host that other workers reach this one by.")],
    device: Annotated[str, typer.Option(help="Device of the slot.")],
    transport: Annotated[str, typer.Option(help="What moves tensors.")],
    orphan_seconds: Annotated[float, typer.Option(help="How long a coordinator that does not answer is dialled.")],
    record_fd: Annotated[int, typer.Option(help="Descriptor of the memory shared with the agent.")],
) -> None:
    """Wait for one worker's place in one attempt on stdin, and fill it. Agents start this."""
    from stage_worker.executor import run_executor  # noqa: PLC0415  torch is only needed here

    config = ExecutorConfig(
        coordinator=coordinator,
        state_dir=state_dir,
        advertise=advertise,
        device=device,
        transport=transport,
        orphan_seconds=orphan_seconds,
        record_fd=record_fd,
    )
    raise typer.Exit(run_executor(config))


@app.command()
def facts(
    spec: Annotated[str, typer.Argument(help="Path of a resolved job spec (JSON), or - for stdin.")],
) -> None:
    """Print what a job's model looks like, as JSON, or why it cannot be trained.

    Where the spec has a key `needs` besides, with num_labels, vocabulary_size and pad_token_id of the data, also what
    the model's parts hold and cost.
    """
    from stage_worker.facts import print_facts  # noqa: PLC0415  transformers is only needed here

    raise typer.Exit(print_facts(spec))


def main() -> int:
    """Run the program; return its exit code: 2 for a bad setting."""
    try:
        app(prog_name="python -m stage_worker", standalone_mode=True)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_EXIT
    return 0
