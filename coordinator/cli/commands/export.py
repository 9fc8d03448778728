"""takt export"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.checkpoint_folder import Checkpoint, find_checkpoint, verify
from coordinator.cli.console import print_json, print_line
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.folder import job_folder
from coordinator.cli.merging import merge
from coordinator.cli.options import DEFAULT_STATE_DIR, JobId, Output, OutputFormat, StateDir

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write; must be absent or empty.")]
Step = Annotated[int | None, typer.Option("--step", min=0, metavar="N", help="Checkpoint of step N, else the newest.")]
_TOKENIZER_SECONDS = 120.0


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
    for shard in (*checkpoint.shards_of("parameters"), *checkpoint.shards_of("model")):
        verify(shard)
    try:
        _write(checkpoint, out.resolve(), spec=folder / "spec.json")
    except OSError as error:
        raise CliError(ExitCode.INVALID, f"--out {out} cannot be written: {error.strerror or error}") from error
    if output is OutputFormat.JSON:
        print_json({"job": job_id, "step": checkpoint.step, "folder": os.fspath(out.resolve())})
    else:
        print_line(f"{out}: the model of job {job_id} after step {checkpoint.step}")
    return ExitCode.SUCCESS


def _write(checkpoint: Checkpoint, out: Path, *, spec: Path) -> None:
    """Write everything beside ``out``, then rename it to ``out``."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as parent:
        unfinished = Path(parent) / out.name
        unfinished.mkdir()
        merge([shard.path for shard in checkpoint.shards_of("parameters")], unfinished)
        for shard in checkpoint.shards_of("model"):
            shutil.copyfile(shard.path, unfinished / shard.path.name)
        _write_tokenizer(spec, unfinished)
        unfinished.rename(out)


def _write_tokenizer(spec: Path, folder: Path) -> None:
    """Have the data service's program, which knows tokenizers, save the job's tokenizer."""
    argv = [sys.executable, "-m", "dataloader_svc", "tokenizer", os.fspath(spec), os.fspath(folder)]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TOKENIZER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CliError(ExitCode.UNREACHABLE, f"the tokenizer was not saved in {_TOKENIZER_SECONDS:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise CliError(ExitCode.INVALID, f"the tokenizer cannot be saved: {lines[-1].removeprefix('error: ')}")
