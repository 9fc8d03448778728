"""Options that several commands share."""

import enum
from pathlib import Path
from typing import Annotated

import typer

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
JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.")]
NewJobId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Id to give the job; made from its name where it is not given."),
]
