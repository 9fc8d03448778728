"""takt checkpoints"""

import os
from typing import Annotated, Any

import typer

from coordinator.cli.checkpoint_list import Entry, list_checkpoints
from coordinator.cli.console import print_json, print_remark, stdout
from coordinator.cli.documents import rfc3339
from coordinator.cli.exits import ExitCode
from coordinator.cli.folder import job_folder
from coordinator.cli.options import DEFAULT_STATE_DIR, JobId, Output, OutputFormat, StateDir
from coordinator.cli.tables import local_time, plain_table

Verify = Annotated[bool, typer.Option("--verify", help="Read every file and check its digest; exit 2 where one fails.")]


def command(
    *,
    job_id: JobId,
    verify: Verify = False,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """List the checkpoints of a job, from the files alone; no service has to run.

    A complete one can be gone on from and exported. One that is not complete is being written, or was cut short.
    """
    entries = list_checkpoints(job_folder(state_dir, job_id), verify=verify)
    if output is OutputFormat.JSON:
        print_json({"job": job_id, "checkpoints": [_record(entry) for entry in entries]})
    else:
        _show(entries)
    for entry in entries:
        if entry.problem is not None:
            print_remark(f"step {entry.step}: {entry.problem}")
    return (
        ExitCode.INVALID
        if any(entry.verified is False and not entry.set_aside for entry in entries)
        else ExitCode.SUCCESS
    )


def _record(entry: Entry) -> dict[str, Any]:
    return {
        "step": entry.step,
        "epoch": entry.epoch,
        "time": rfc3339(entry.time),
        "bytes": entry.num_bytes,
        "files": entry.num_files,
        "complete": entry.complete,
        "set_aside": entry.set_aside,
        "verified": entry.verified,
        "problem": entry.problem,
        "folder": os.fspath(entry.folder.resolve()),
    }


def _show(entries: list[Entry]) -> None:
    table = plain_table("STEP", "EPOCH", "TIME", "BYTES", "FILES", "STATE")
    for entry in entries:
        epoch = "-" if entry.epoch is None else str(entry.epoch)
        row = (
            str(entry.step),
            epoch,
            local_time(entry.time),
            f"{entry.num_bytes:,}",
            str(entry.num_files),
            _state(entry),
        )
        table.add_row(*row)
    stdout().print(table if entries else "no checkpoints")


def _state(entry: Entry) -> str:
    if entry.set_aside:
        return "set aside as damaged"
    if entry.problem is not None:
        return "damaged"
    if not entry.complete:
        return "incomplete"
    return "complete, verified" if entry.verified else "complete"
