"""takt export"""

import os
from pathlib import Path
from typing import Annotated

import typer

from coordinator.checkpoints import find_checkpoint
from coordinator.cli.console import print_json, print_line
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.folder import job_folder
from coordinator.cli.model_folder import write_model
from coordinator.cli.options import DEFAULT_STATE_DIR, JobId, Output, OutputFormat, StateDir

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write; must be absent or empty.")]
Step = Annotated[int | None, typer.Option("--step", min=0, metavar="N", help="Checkpoint of step N, else the newest.")]


def command(
    *,
    job_id: JobId,
    out: Out,
    step: Step = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Write the trained model as a plain Hugging Face folder.

    It is made from a complete checkpoint in the state folder, whose digests are checked first; no service has
    to run. DIR appears only when it is complete.
    """
    folder = job_folder(state_dir, job_id)
    checkpoint = find_checkpoint(folder, step=step)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise CliError(ExitCode.CONFLICT, f"--out {out} is there and is no empty folder; choose another")
    write_model(checkpoint, out.resolve(), spec=folder / "spec.json")
    if output is OutputFormat.JSON:
        print_json({"job": job_id, "step": checkpoint.step, "folder": os.fspath(out.resolve())})
    else:
        print_line(f"{out}: the model of job {job_id} after step {checkpoint.step}")
    return ExitCode.SUCCESS
