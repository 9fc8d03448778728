"""The checkpoints of a job as they lie in its folder, those too that nothing can go on from."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from coordinator.checkpoints import MANIFEST, DamagedCheckpointError, read_checkpoint

_FOLDER = re.compile(r"step-(\d+)(?P<aside>\.damaged.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One folder of a checkpoint."""

    folder: Path
    step: int
    epoch: int | None
    """Absent where no manifest tells it."""
    time: float
    """When it was completed, or last touched where it was not, in Unix seconds."""
    num_bytes: int
    num_files: int
    """Without the manifest."""
    complete: bool
    """Whether its manifest is there and can be read."""
    set_aside: bool = False
    """Whether a coordinator has found it damaged; nothing uses it any more."""
    verified: bool | None = None
    """Whether all files have their digests; absent where that was not looked at."""
    problem: str | None = None


class _RemovedError(Exception):
    """What was looked at is not there any more."""


def list_checkpoints(job_folder: Path, *, verify: bool) -> list[Entry]:
    """Return what is there, by step; with ``verify`` every file is read and checked against its digest."""
    found = [
        (int(match[1]), path, match["aside"] is not None)
        for path in (job_folder / "checkpoints").glob("step-*")
        if (match := _FOLDER.fullmatch(path.name))
    ]
    entries: list[Entry] = []
    for step, path, set_aside in sorted(found):
        try:
            entries.append(_entry(path, step, set_aside=set_aside, verify=verify))
        except _RemovedError:  # a coordinator removes the oldest as it goes
            continue
    return entries


def _entry(folder: Path, step: int, *, set_aside: bool, verify: bool) -> Entry:
    manifest = folder / MANIFEST
    try:
        was_complete = manifest.is_file()
        files = [path for path in folder.iterdir() if path != manifest]
        entry = Entry(
            folder=folder,
            step=step,
            epoch=None,
            time=(manifest if was_complete else folder).stat().st_mtime,
            num_bytes=sum(path.stat().st_size for path in files),
            num_files=len(files),
            complete=False,
            set_aside=set_aside,
        )
    except FileNotFoundError as error:
        raise _RemovedError from error
    if not was_complete:
        return entry
    try:
        checkpoint = read_checkpoint(folder, step=step)
        epoch = checkpoint.manifest.get("epoch")
        entry = replace(
            entry,
            epoch=epoch if isinstance(epoch, int) else None,
            num_bytes=sum(shard.size_bytes for shard in checkpoint.shards),
            num_files=len(checkpoint.shards),
            complete=True,
        )
        if verify:
            checkpoint.verify()
    except DamagedCheckpointError as error:
        if not manifest.is_file():  # it goes first
            raise _RemovedError from error
        return replace(entry, verified=False if verify else None, problem=str(error))
    return replace(entry, verified=True if verify else None)
