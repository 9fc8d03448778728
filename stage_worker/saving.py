"""Writes checkpoints beside the training: a thread of its own streams the shards of one while the next step is done.

Note [Copy on write]: from one update to the next nothing changes what a checkpoint holds, so it is written from the
very tensors that are trained. What is not written when the next update comes is copied just before it. The thread too
writes from copies, of a few MiB each, so that an update never waits for the disk.
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
from stage_worker.shard_file import Pieces, piece_starts, read_piece, write_pieces, write_tensors

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
    copy_seconds: float
    """How long an update waited until what was left was copied."""


class Saving:
    """Saves one checkpoint at a time. Only the writing happens in the other thread."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Held while a piece of a tensor is copied, and while all that is left is."""
        self._left: dict[tuple[str, str], torch.Tensor] = {}
        """What is not written yet, by file and name; each leaves the moment it is."""
        self._is_live = False
        """Whether these are the tensors that are trained."""
        self._copy_seconds = 0.0

    def begin(self, folder: Path, shards: Sequence[Shard], *, told: Callable[[Saved], None]) -> None:
        """Begin to write shards, once an earlier checkpoint is written.

        Args:
            folder: of the checkpoint; made where it is missing.
            shards: what is written.
            told: called at the end, from the other thread.
        """
        self.finish()
        self._left = {(shard.file, name): tensor for shard in shards for name, tensor in shard.tensors.items()}
        self._is_live, self._copy_seconds = True, 0.0
        self._thread = threading.Thread(target=self._run, args=(folder, shards, told), name="saving", daemon=True)
        self._thread.start()

    @property
    def needs_copies(self) -> bool:
        """Whether the next update would change what is not written yet."""
        return self._is_live

    def before_update(self) -> None:
        """What is being saved is about to change: copy what is not written yet, once."""
        began = time.monotonic()
        with self._lock:
            if self._is_live:
                self._left = {key: tensor.detach().clone() for key, tensor in self._left.items()}
                self._is_live, self._copy_seconds = False, time.monotonic() - began

    def finish(self) -> None:
        """Return when nothing is being written any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, folder: Path, shards: Sequence[Shard], told: Callable[[Saved], None]) -> None:
        began = time.monotonic()
        written: tuple[WrittenShard, ...]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written = tuple(self._write(folder, shard) for shard in shards)
            _sync_folder(folder)
            error = ""
        except Exception as failure:
            # Whatever it is, training goes on and the coordinator must hear of it.
            log.exception("a checkpoint could not be written", folder=str(folder))
            reason = failure.strerror or str(failure) if isinstance(failure, OSError) else repr(failure)
            written, error = (), f"{folder}: {reason}"
        with self._lock:
            self._left, self._is_live = {}, False
            copy_seconds = self._copy_seconds
        told(Saved(shards=written, error=error, seconds=time.monotonic() - began, copy_seconds=copy_seconds))

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
        key = file, name
        for start in piece_starts(self._left[key]):
            with self._lock:
                piece = read_piece(self._left[key], start)
            yield piece
        with self._lock:
            del self._left[key]


def _text(text: str) -> Pieces:
    yield text.encode()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # else the renames may be lost with the power
    finally:
        os.close(descriptor)
