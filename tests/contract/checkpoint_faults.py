"""A program that saves checkpoints of two workers and meets a fault at every point of it, one after the other.

    python tests/contract/checkpoint_faults.py FOLDER kill|full

Point n of a save is the n-th time that something is opened, written, synced or renamed, once before it, once in its
middle (of a write half the bytes are there) and once after it. A save is done in a fork for each point, on a copy of
a job that has the checkpoint of step 2: the fork is killed there, or its disk is full from there on. Prints a JSON line
a point: ``{"folder", "point", "errors"}``, the errors of those workers that lived to tell them.

With ``save`` in the place of ``kill`` it saves steps 2 and 4 once, in a folder that may be as small as it likes.
"""

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import structlog
import torch

from coordinator.events import SavedShard
from coordinator.files import JobFiles
from coordinator.schedule.plan import make_plan
from stage_worker.checkpoint import Shard
from stage_worker.saving import Saved, Saving

NUM_STAGES = 2
ABOUT = {
    "attempt": 1,
    "epoch": 0,
    "agreed": {"updates_applied": 2, "loss_scale": None, "clean_steps": 0},
    "data": {"next_step": 3, "epoch": 0, "seed": 0, "global_batch_size": 4, "train_digest": "d"},
    "from": None,
}


def shards_of(stage: int, step: int) -> list[Shard]:
    """Return what a worker saves: values tell the stage and the step."""
    value = float(10 * step + stage)
    parameters = {"a": torch.full((8, 4), value), "b": torch.full((3,), value)}
    moments = {f"{name}.exp_avg": tensor / 2 for name, tensor in parameters.items()}
    shards = [
        Shard(f"stage-{stage:03}.safetensors", "parameters", stage, parameters, {"format": "pt"}),
        Shard(f"optimizer-{stage:03}.safetensors", "optimizer", stage, moments, {}),
    ]
    return [*shards, *([Shard("config.json", "model", stage, {}, {}, text="{}\n")] if stage == 0 else [])]


def save(job: Path, step: int) -> list[str]:
    """Save as the workers of two stages and the coordinator do; return what went wrong."""
    files, told = JobFiles(job), list[Saved]()
    for stage in range(NUM_STAGES):
        saving = Saving()
        saving.begin(job / "checkpoints" / f"step-{step}", shards_of(stage, step), told=told.append)
        saving.finish()
    errors = [saved.error for saved in told if saved.error]
    if not errors:
        shards = [
            SavedShard(file=one.file, kind=one.kind, stage=one.stage, sha256=one.sha256, num_bytes=one.num_bytes)
            for saved in told
            for one in saved.shards
        ]
        try:
            files.write_manifest(step=step, num_stages=NUM_STAGES, shards=shards, about=ABOUT)
        except OSError as error:
            errors.append(str(error))
    return errors


class Points:
    """Counts what a save does to the disk, and calls ``fault`` from the ``first`` point on."""

    def __init__(self, first: int, fault: Callable[[], None]) -> None:
        self._first = first
        self._fault = fault
        self.count = 0

    def reach(self) -> None:
        """Come to the next point."""
        self.count += 1
        if self.count >= self._first:
            self._fault()

    def install(self) -> None:
        """Watch this process from now on."""
        os.fsync = self._around(os.fsync)
        os.replace = self._around(os.replace)
        opens = Path.open

        def open_watched(path: Path, mode: str = "r", **more: Any) -> Any:
            file = opens(path, mode, **more)
            if "w" in mode:
                self.reach()
                file = WatchedFile(file, self)
            return file

        Path.open = open_watched  # type: ignore[assignment,method-assign]

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            self.reach()
            result = call(*arguments)
            self.reach()
            return result

        return watched


class WatchedFile:
    """A file whose writes can be cut in their middle."""

    def __init__(self, file: Any, points: Points) -> None:
        self._file = file
        self._points = points

    def write(self, content: Any) -> None:
        """Write half, then the other half."""
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            self._points.reach()
            self._file.write(part)
            self._file.flush()
        self._points.reach()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "WatchedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def kill() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def is_full() -> None:
    """Do as a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def attempt(job: Path, point: int, fault: Callable[[], None]) -> bool:
    """Save step 4 in a fork that meets a fault at a point; return whether it came so far."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        points = Points(point, fault)
        points.install()
        errors = save(job, 4)
        os.write(write_end, json.dumps([errors, points.count]).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        answer = told.read()
    os.waitpid(pid, 0)
    errors, count = json.loads(answer) if answer else ([], point)
    print(json.dumps({"folder": str(job), "point": point, "errors": errors}), flush=True)
    return bool(count >= point)


def _drop(*_: Any) -> NoReturn:
    raise structlog.DropEvent


def main(folder: Path, mode: str) -> None:
    """Go through all points, and one beyond them."""
    torch.set_num_threads(1)
    structlog.configure(processors=[_drop])  # tracebacks with colours take seconds
    job = folder / "job"
    files = JobFiles(job)
    files.create("{}")
    files.write_plan(make_plan("1f1b", num_workers=NUM_STAGES, num_microbatches=2))
    assert not save(job, 2)
    if mode == "save":
        print(json.dumps({"folder": str(job), "point": 0, "errors": save(job, 4)}), flush=True)
        return
    point = 1
    while attempt(shutil.copytree(job, folder / f"{mode}-{point}"), point, {"kill": kill, "full": is_full}[mode]):
        point += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
