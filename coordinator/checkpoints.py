"""Checkpoints as they lie in the folder of a job: found, read, and trusted only after their digests were checked.

A checkpoint is a folder ``checkpoints/step-N`` with shards and, written last, ``manifest.json``::

    {schema, job, attempt, step, epoch, num_stages, spec_sha256, plan_sha256,
     agreed: {updates_applied, loss_scale, clean_steps},              what all workers had alike
     data: {next_step, epoch, seed, global_batch_size, train_digest}, which rows come next, and of what
     from: null or {job, step},                                       whose checkpoint it was
     shards: [{file, kind, stage, sha256, bytes}]}                    kind is parameters, optimizer or model

Calls block: make them off the event loop.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from takt.rpc.errors import TaktError

from coordinator.start import AgreedState, SavedState

MANIFEST = "manifest.json"
PARAMETERS, OPTIMIZER, MODEL = "parameters", "optimizer", "model"
_STEP_FOLDER = re.compile(r"step-(\d+)")


class NoCheckpointError(TaktError):
    """The checkpoint that was asked for is not there."""


class DamagedCheckpointError(TaktError):
    """A checkpoint that is not what was saved; tells the file and what is wrong with it."""


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
    manifest: Mapping[str, Any]
    """As it was read."""

    def shards_of(self, kind: str) -> tuple[ShardFile, ...]:
        """Return the files of one kind, by stage."""
        return tuple(sorted((shard for shard in self.shards if shard.kind == kind), key=lambda shard: shard.stage))

    def saved(self) -> SavedState:
        """Return it as what an attempt goes on from.

        Raises:
            DamagedCheckpointError: the manifest does not tell all that this needs.
        """
        try:
            agreed = self.manifest["agreed"]
            scale = agreed["loss_scale"]
            state = AgreedState(
                updates_applied=int(agreed["updates_applied"]),
                loss_scale=None if scale is None else float(scale),
                clean_steps=int(agreed["clean_steps"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(self.folder / MANIFEST, f"does not tell what all workers had alike: {error!r}") from error
        return SavedState(
            step=self.step,
            parameters=tuple(shard.path.name for shard in self.shards_of(PARAMETERS)),
            optimizer=tuple(shard.path.name for shard in self.shards_of(OPTIMIZER)),
            agreed=state,
        )

    def verify(self, *kinds: str) -> None:
        """Check the files of ``kinds``, of all kinds where none is named.

        Raises:
            DamagedCheckpointError: one is missing, or is not the one that was saved.
        """
        for shard in self.shards:
            if not kinds or shard.kind in kinds:
                verify(shard)


def complete_steps(job_folder: Path) -> list[int]:
    """Return the steps of a job's complete checkpoints, ascending."""
    return sorted(step for step, folder in step_folders(job_folder).items() if (folder / MANIFEST).is_file())


def step_folders(job_folder: Path) -> dict[int, Path]:
    """Return the folders of a job's checkpoints by step, complete or not; those that were set aside are none."""
    found = ((_STEP_FOLDER.fullmatch(path.name), path) for path in job_folder.glob("checkpoints/step-*"))
    return {int(match[1]): path for match, path in found if match}


def find_checkpoint(job_folder: Path, *, step: int | None) -> Checkpoint:
    """Return the checkpoint of ``step``, or the newest complete one.

    Raises:
        NoCheckpointError: there is none.
        DamagedCheckpointError: its manifest is damaged.
    """
    complete = complete_steps(job_folder)
    if not complete:
        raise NoCheckpointError(f"job {job_folder.name} has no complete checkpoint in {job_folder}")
    chosen = complete[-1] if step is None else step
    if chosen not in complete:
        steps = ", ".join(map(str, complete))
        raise NoCheckpointError(f"job {job_folder.name} has no checkpoint of step {chosen}, only of {steps}")
    return read_checkpoint(job_folder / "checkpoints" / f"step-{chosen}", step=chosen)


def read_checkpoint(folder: Path, *, step: int | None = None) -> Checkpoint:
    """Return what the manifest in ``folder`` says, which must be of ``step`` where one is given.

    Raises:
        DamagedCheckpointError: it is no manifest, or one of something else.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
        shards = tuple(_shard(folder, entry) for entry in manifest["shards"])
        if not isinstance(manifest["step"], int) or (step is not None and manifest["step"] != step):
            raise ValueError(f"it is of step {manifest['step']}")
        _check_stages(shards, num_stages=manifest["num_stages"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, f"is no manifest: {error!r}") from error
    return Checkpoint(folder=folder, step=manifest["step"], shards=shards, manifest=manifest)


def verify(shard: ShardFile) -> None:
    """Check one file against its manifest.

    Raises:
        DamagedCheckpointError: the file is missing, cannot be read, or is not the one that was saved.
    """
    try:
        if not shard.path.is_file():
            raise _damaged(shard.path, "is missing")
        size = shard.path.stat().st_size
        if size != shard.size_bytes:
            raise _damaged(shard.path, f"has {size} bytes, its manifest says {shard.size_bytes}")
        with shard.path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                raise _damaged(shard.path, "does not have its SHA-256")
    except OSError as error:
        raise _damaged(shard.path, f"cannot be read: {error.strerror or error}") from error


def _damaged(path: Path, what: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"the checkpoint is damaged: {path} {what}")


def _shard(folder: Path, entry: Mapping[str, object]) -> ShardFile:
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
    for kind in (PARAMETERS, OPTIMIZER):
        stages = sorted(shard.stage for shard in shards if shard.kind == kind)
        if stages != list(range(num_stages)) and (stages or kind == PARAMETERS):
            raise ValueError(f"{kind} are there of stages {stages}, need 0 to {num_stages - 1}")
