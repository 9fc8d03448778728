"""Checkpoints of a job as they lie in its folder: found, and trusted only after their digests were checked."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from coordinator.cli.exits import CliError, ExitCode

_STEP_FOLDER = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file of a checkpoint as its manifest describes it."""

    path: Path
    kind: str
    """parameters, optimizer or model."""
    stage: int
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: its manifest was written, which happens last."""

    folder: Path
    step: int
    shards: tuple[ShardFile, ...]

    def shards_of(self, kind: str) -> tuple[ShardFile, ...]:
        """Return the files of one kind, by stage."""
        return tuple(sorted((shard for shard in self.shards if shard.kind == kind), key=lambda shard: shard.stage))


def find_checkpoint(job_folder: Path, *, step: int | None) -> Checkpoint:
    """Return the checkpoint of ``step``, or the newest complete one.

    Raises:
        CliError: there is none, or its manifest is damaged.
    """
    complete = {
        int(match[1]): path.parent
        for path in (job_folder / "checkpoints").glob("step-*/manifest.json")
        if (match := _STEP_FOLDER.fullmatch(path.parent.name))
    }
    if not complete:
        raise CliError(ExitCode.NOT_FOUND, f"job {job_folder.name} has no complete checkpoint in {job_folder}")
    chosen = max(complete) if step is None else step
    if chosen not in complete:
        steps = ", ".join(map(str, sorted(complete)))
        raise CliError(ExitCode.NOT_FOUND, f"job {job_folder.name} has no checkpoint of step {chosen}, only of {steps}")
    return _read(complete[chosen], chosen)


def verify(shard: ShardFile) -> None:
    """Check one file against its manifest.

    Raises:
        CliError: the file is missing, or is not the one that was saved.
    """
    if not shard.path.is_file():
        raise CliError(ExitCode.INVALID, f"the checkpoint is damaged: {shard.path} is missing")
    size = shard.path.stat().st_size
    if size != shard.size_bytes:
        message = f"the checkpoint is damaged: {shard.path} has {size} bytes, its manifest says {shard.size_bytes}"
        raise CliError(ExitCode.INVALID, message)
    with shard.path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
            raise CliError(ExitCode.INVALID, f"the checkpoint is damaged: {shard.path} does not have its SHA-256")


def _read(folder: Path, step: int) -> Checkpoint:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
        shards = tuple(_shard(folder, entry) for entry in manifest["shards"])
        if manifest["step"] != step:
            raise ValueError(f"it is of step {manifest['step']}")
        _check_stages(shards, num_stages=manifest["num_stages"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(ExitCode.INVALID, f"the checkpoint is damaged: {path} is no manifest: {error!r}") from error
    return Checkpoint(folder=folder, step=step, shards=shards)


def _shard(folder: Path, entry: dict[str, object]) -> ShardFile:
    name = str(entry["file"])
    if Path(name).name != name:
        raise ValueError(f"file name {name!r} leads elsewhere")
    return ShardFile(
        path=folder / name,
        kind=str(entry["kind"]),
        stage=int(str(entry["stage"])),
        sha256=str(entry["sha256"]),
        size_bytes=int(str(entry["bytes"])),
    )


def _check_stages(shards: tuple[ShardFile, ...], *, num_stages: int) -> None:
    stages = sorted(shard.stage for shard in shards if shard.kind == "parameters")
    if stages != list(range(num_stages)):
        raise ValueError(f"parameters are there of stages {stages}, need 0 to {num_stages - 1}")
