"""Writes checkpoints beside the training: a thread of its own streams the shards of one while the next step is done.

Note [Copy on write]: from one update to the next nothing changes what a checkpoint holds, so it is written from the
very tensors that are trained. What is not written when the next update comes is copied just before it; only the tensor
that is being written right then is waited for.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
import torch

from stage_worker.checkpoint import Shard
from stage_worker.shard_file import Pieces, pieces_of, write_pieces, write_tensors

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """One file of a checkpoint on the disk."""

    file: str
    """Name in the checkpoint's folder."""
    kind: str
    """parameters, optimizer, or model for its config.json."""
    stage: int
    sha256: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What came of saving."""

    shards: tuple[WrittenShard, ...]
    error: str
    """Why it could not be done, for a person; empty where it was."""
    seconds: float
    """From its beginning to its end."""


class Saving:
    """Saves one checkpoint at a time. Only the writing happens in the other thread."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Held while a tensor is written, and while those that are left are copied."""
        self._left: dict[tuple[str, str], torch.Tensor] = {}
        """What is not written yet, by file and name; each leaves the moment it is."""

    def begin(self, folder: Path, shards: Sequence[Shard], *, told: Callable[[Saved], None]) -> None:
        """Begin to write shards, once an earlier checkpoint is written.

        Args:
            folder: of the checkpoint; made where it is missing.
            shards: what is written.
            told: called at the end, from the other thread.
        """
        self.finish()
        self._left = {(shard.file, name): tensor for shard in shards for name, tensor in shard.tensors.items()}
        self._thread = threading.Thread(target=self._run, args=(folder, shards, told), name="saving", daemon=True)
        self._thread.start()

    def before_update(self) -> None:
        """What is being saved is about to change: copy what is not written yet."""
        with self._lock:
            self._left = {key: tensor.detach().clone() for key, tensor in self._left.items()}

    def finish(self) -> None:
        """Return when nothing is being written any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, folder: Path, shards: Sequence[Shard], told: Callable[[Saved], None]) -> None:
        began = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written = tuple(self._write(folder, shard) for shard in shards)
            _sync_folder(folder)
            saved = Saved(shards=written, error="", seconds=time.monotonic() - began)
        except Exception as error:
            # Whatever it is, training goes on and the coordinator must hear of it.
            log.exception("a checkpoint could not be written", folder=str(folder))
            reason = error.strerror or str(error) if isinstance(error, OSError) else repr(error)
            saved = Saved(shards=(), error=f"{folder}: {reason}", seconds=time.monotonic() - began)
        finally:
            with self._lock:
                self._left = {}
        told(saved)

    def _write(self, folder: Path, shard: Shard) -> WrittenShard:
        path = folder / shard.file
        if shard.text:
            file = write_pieces(path, _text(shard.text))
        else:
            file = write_tensors(
                path, shard.tensors, metadata=shard.metadata, pieces=lambda name: self._pieces(shard.file, name)
            )
        return WrittenShard(shard.file, shard.kind, shard.stage, file.sha256, file.num_bytes)

    def _pieces(self, file: str, name: str) -> Pieces:
        with self._lock:
            yield from pieces_of(self._left[file, name])
            del self._left[file, name]


def _text(text: str) -> Pieces:
    yield text.encode()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # else the renames may be lost with the power
    finally:
        os.close(descriptor)
