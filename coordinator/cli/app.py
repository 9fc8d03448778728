"""The program `takt`: picks the command, runs it, turns whatever it raises into an exit code."""

import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Annotated, Any

import typer

from coordinator.cli.exits import ExitCode
from coordinator.cli.interrupts import stops_interrupt
from coordinator.cli.streams import discard_output, fill_closed_streams

COMMANDS = {
    "run": "Train a job on this machine, from start to stop.",
    "up": "Keep a coordinator, data service and workers running here.",
    "submit": "Give a job to a coordinator; print its id.",
    "status": "Show one job.",
    "list": "List all jobs, the newest first.",
    "wait": "Wait until a job has ended; exit with its code.",
    "cancel": "Ask a job to end.",
    "logs": "Print the log lines of a job's workers.",
    "workers": "List the worker slots that the coordinator knows.",
    "validate": "Make every check that submit makes, and start nothing.",
    "plan": "Compile, check and draw a plan; predict its length.",
    "schema": "Print the JSON Schema of the job file.",
    "checkpoints": "List the checkpoints of a job; check their files.",
    "export": "Write the trained model as a plain Hugging Face folder.",
    "trace": "Write the measured timeline of a job, beside its plan.",
    "explain": "Tell where the time of a job's workers went, and what to change.",
    "profile": "Measure what the parts of a job's model cost.",
    "predict": "Predict the rows of a split with a trained model.",
}
"""Every command with its one line of help; the code of NAME is imported only when NAME is run."""

_ABOUT = """Train Hugging Face transformers by pipeline parallelism.

Exit codes: 0 success; 1 the job FAILED; 2 usage or invalid job file; 3 not found; 4 conflict;
5 coordinator unreachable or timed out; 6 not authorised; 7 the job was CANCELLED.

With --output json, stdout is one JSON document ("schema": "takt/v1"); times are RFC 3339 in UTC,
and what is not known is null."""

_UsageError: Any = typer.BadParameter.__bases__[0]  # click's, wherever typer keeps its click


def _print_version(asked: bool) -> None:
    if asked:
        print(f"takt {metadata.version('takt-train')}")
        raise typer.Exit


def build(chosen: str | None) -> typer.Typer:
    """Return the program with the code of the ``chosen`` command, and of no other."""
    app = typer.Typer(name="takt", help=_ABOUT, add_completion=False, rich_markup_mode=None)
    app.callback()(_before_commands)
    for name, text in COMMANDS.items():
        code = import_module(f"coordinator.cli.commands.{name}").command if name == chosen else _no_command
        app.command(name, help=None if name == chosen else text)(code)
    return app


def _before_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def _no_command() -> None:
    """Stand where a command is listed but not run."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (see `ExitCode`)."""
    fill_closed_streams()
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    first = next((argument for argument in arguments if not argument.startswith("-")), None)
    chosen = first if first in COMMANDS else None
    try:
        with stops_interrupt():
            return build(chosen)(args=arguments, prog_name="takt", standalone_mode=False) or ExitCode.SUCCESS
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except SystemExit:  # what typer makes of a pipe that nobody reads any more, as in `| head -1`
        discard_output()
        return ExitCode.NOT_READ
    except Exception as error:
        if isinstance(error, _UsageError):
            help_of = f"takt {chosen} --help" if chosen else "takt --help"
            print(f"error: {error.format_message()} (see '{help_of}')", file=sys.stderr)
            return ExitCode.INVALID
        code: int = import_module("coordinator.cli.failures").report(error)
        return code
