"""A trained model as a plain Hugging Face folder, made from a checkpoint; no service has to run."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from coordinator.checkpoints import MODEL, PARAMETERS, Checkpoint
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.merging import merge

_TOKENIZER_SECONDS = 120.0


def write_model(checkpoint: Checkpoint, out: Path, *, spec: Path) -> None:
    """Check a checkpoint's digests and write its model into ``out``, which appears only when it is complete.

    Args:
        checkpoint: complete.
        out: absolute; absent or an empty folder.
        spec: spec.json of the job, which knows the tokenizer.

    Raises:
        DamagedCheckpointError: a file is not what was saved.
        CliError: the tokenizer cannot be saved, or ``out`` cannot be written.
    """
    checkpoint.verify(PARAMETERS, MODEL)
    try:
        _write(checkpoint, out, spec=spec)
    except OSError as error:
        raise CliError(ExitCode.INVALID, f"{out} cannot be written: {error.strerror or error}") from error


def _write(checkpoint: Checkpoint, out: Path, *, spec: Path) -> None:
    """Write everything beside ``out``, then rename it to ``out``."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as parent:
        unfinished = Path(parent) / out.name
        unfinished.mkdir()
        merge([shard.path for shard in checkpoint.shards_of(PARAMETERS)], unfinished)
        for shard in checkpoint.shards_of(MODEL):
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
