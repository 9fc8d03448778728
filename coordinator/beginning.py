"""Finds the state that an attempt goes on from: in the job's own folder, or where `checkpoint.from` says.

Calls block: make them off the event loop.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.checkpoints import (
    MANIFEST,
    Checkpoint,
    DamagedCheckpointError,
    NoCheckpointError,
    complete_steps,
    find_checkpoint,
    read_checkpoint,
)
from coordinator.files import JobFiles
from coordinator.origin import JobOrigin, folder_of, origin_of
from coordinator.planning import JobPlan
from coordinator.problem import Problem, SpecError
from coordinator.sections import JobSpec
from coordinator.spec import from_json
from coordinator.start import Found, SavedState

KEY = "checkpoint.from"
_SAME_KEYS = (
    "model.pretrained",
    "model.config",
    "data.task",
    "data.shuffle",
    "data.drop_last",
    "data.max_train_rows",
    "train.global_batch_size",
    "train.optimizer",
    "train.frozen_layers",
    "train.objective",
    "train.seed",
)
"""What decides which rows come next and what a state holds; the rest may change when another job goes on from it."""


def find_saved(state_dir: Path, job: str, plan: JobPlan) -> Found:
    """Return the newest good checkpoint in a job's own folder; where there is none, the one that the job starts from.

    Every file is read and checked against its digest. A damaged checkpoint is set aside, never removed.

    Raises:
        SpecError: `checkpoint.from` names what this job cannot go on from, or training rows have changed since.
    """
    files = JobFiles.of(state_dir, job)
    notices: list[str] = []
    for step in reversed(complete_steps(files.folder)):
        try:
            checkpoint = find_checkpoint(files.folder, step=step)
            saved = _own(checkpoint, files)
        except DamagedCheckpointError as error:
            notices.append(f"{error}; it is kept as {files.set_aside(step).name}")
            continue
        _check_rows(checkpoint, plan, key="data.source")
        return Found(saved, tuple(notices))
    origin = find_origin(state_dir, plan.spec, plan=plan)
    if origin is None:
        return Found(None, tuple(notices))
    origin.verify()
    return Found(_taken_over(origin, files).saved(), tuple(notices))


def find_origin(state_dir: Path, spec: JobSpec, *, plan: JobPlan | None) -> Checkpoint | None:
    """Return the checkpoint that `checkpoint.from` names; None where it names none, or a folder of weights.

    Raises:
        SpecError: there is none, or this job cannot go on from it.
    """
    text = spec.checkpoint.from_
    if text is None or folder_of(spec) is not None:
        return None
    try:
        checkpoint = _named(state_dir, origin_of(text))
        checkpoint.saved()
        source = from_json((checkpoint.folder.parent.parent / "spec.json").read_text())
    except (ValueError, NoCheckpointError, DamagedCheckpointError) as error:
        raise SpecError([Problem(KEY, str(error))]) from error
    except OSError as error:
        raise SpecError([Problem(KEY, f"the spec of {text} cannot be read: {error}")]) from error
    before, now = _flat(source), _flat(spec)
    differing = [key for key in _SAME_KEYS if before[key] != now[key]]
    if differing:
        told = "; ".join(f"{key} was {before[key]}, is {now[key]}" for key in differing)
        message = (
            f"job {checkpoint.manifest.get('job')} cannot be gone on from, for its rows or its state would be others: "
            f"{told}. To start anew from its weights alone, export it and name the folder"
        )
        raise SpecError([Problem(KEY, message)])
    if plan is not None:
        if checkpoint.step > plan.total_steps:
            message = f"is at step {checkpoint.step}, but the job ends at step {plan.total_steps}; train for longer"
            raise SpecError([Problem(KEY, message)])
        _check_rows(checkpoint, plan, key=KEY)
    return checkpoint


def _named(state_dir: Path, origin: JobOrigin | Path) -> Checkpoint:
    match origin:
        case JobOrigin(job, step):
            folder = JobFiles.of(state_dir, job).folder
            if not folder.is_dir():
                raise NoCheckpointError(f"there is no job {job} in {state_dir}, and no folder of that name here")
            return find_checkpoint(folder, step=step)
        case folder:
            return read_checkpoint(folder)


def _own(checkpoint: Checkpoint, files: JobFiles) -> SavedState:
    """Return a checkpoint as a state of the job whose folder it lies in.

    Raises:
        DamagedCheckpointError: a file is not what was saved, or belongs to another job.
    """
    path = checkpoint.folder / MANIFEST
    job, spec_sha256 = checkpoint.manifest.get("job"), checkpoint.manifest.get("spec_sha256")
    if job != files.folder.name:
        raise DamagedCheckpointError(f"the checkpoint is foreign: {path} is of job {job}")
    if spec_sha256 != files.spec_sha256():
        raise DamagedCheckpointError(f"the checkpoint is foreign: {path} is of another spec than spec.json")
    checkpoint.verify()
    return checkpoint.saved()


def _check_rows(checkpoint: Checkpoint, plan: JobPlan, *, key: str) -> None:
    data = checkpoint.manifest.get("data")
    before = data.get("train_digest") if isinstance(data, Mapping) else None
    split = plan.data.split("train")
    if before and split is not None and split.digest and before != split.digest:
        message = (
            f"the training rows are not those that step {checkpoint.step} was trained on; put the files back, "
            "or begin another job"
        )
        raise SpecError([Problem(key, message)])


def _taken_over(origin: Checkpoint, files: JobFiles) -> Checkpoint:
    """Make another job's checkpoint one of this job's own, so that the other one may be removed meanwhile."""
    folder = files.folder / "checkpoints" / f"step-{origin.step}"
    folder.mkdir(parents=True, exist_ok=True)
    for shard in origin.shards:
        target = folder / shard.path.name
        target.unlink(missing_ok=True)
        try:
            os.link(shard.path, target)
        except OSError:  # another file system, or one without links
            shutil.copyfile(shard.path, target)
    source = {"job": origin.manifest.get("job"), "step": origin.step}
    files.complete_checkpoint({**origin.manifest, "from": source}, step=origin.step)
    taken = read_checkpoint(folder, step=origin.step)
    taken.verify()
    return taken


def _flat(spec: JobSpec) -> dict[str, Any]:
    document = spec.model_dump(mode="json", by_alias=True)
    sections = {section: keys for section, keys in document.items() if isinstance(keys, dict)}
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
