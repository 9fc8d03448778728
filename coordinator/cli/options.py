"""Options that several commands share."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.exits import CliError, ExitCode
from coordinator.job_id import JobIdError, check_job_id

DEFAULT_COORDINATOR = "127.0.0.1:7700"
DEFAULT_STATE_DIR = Path("takt-state")


class OutputFormat(enum.StrEnum):
    """How a command prints its answer."""

    TABLE = "table"
    JSON = "json"


Coordinator = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        envvar="TAKT_COORDINATOR",
        metavar="HOST:PORT",
        help=f"Address of the coordinator; {DEFAULT_COORDINATOR} where it is not given.",
    ),
]
StateDir = Annotated[
    Path,
    typer.Option("--state-dir", envvar="TAKT_STATE_DIR", metavar="DIR", help="Folder of jobs, logs and checkpoints."),
]
Output = Annotated[
    OutputFormat,
    typer.Option("--output", help="table for people; json prints one JSON document on stdout."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Override a key of the job file; repeatable."),
]
JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job file.")]


def _possible(job_id: str) -> str:
    """Say of an id that no job can have what is said of any other that there is none of; nobody is asked."""
    try:
        check_job_id(job_id)
    except JobIdError:
        raise CliError(ExitCode.NOT_FOUND, f"there is no job {job_id!a}; see 'takt list'") from None
    return job_id


JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", callback=_possible)]
NewJobId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Id to give the job; made from its name where it is not given."),
]
