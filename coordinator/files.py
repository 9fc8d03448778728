"""The files of a run that the coordinator writes; ``*.jsonl`` are projections of the job store."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.checkpoints import MANIFEST, step_folders
from coordinator.events import SavedShard
from coordinator.records import EvaluationRecord, StepRecord
from coordinator.schedule.plan import Plan
from coordinator.schedule.text import to_csv

SCHEMA = "takt/v1"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The folder of one job, ``STATE_DIR/jobs/ID``. Calls block: make them off the event loop."""

    folder: Path

    @classmethod
    def of(cls, state_dir: Path, job: str) -> "JobFiles":
        """Return the folder of a job; it need not exist."""
        return cls(state_dir / "jobs" / job)

    def create(self, spec_json: str) -> None:
        """Make the folder and write the spec into it, whole."""
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        _write_whole(self.folder / "spec.json", spec_json)

    def write_plan(self, plan: Plan) -> None:
        """Write the plan that runs."""
        _write_whole(self.folder / "plan.csv", to_csv(plan.workers))

    def append_step(self, step: StepRecord) -> None:
        """Add one committed step."""
        _append(self.folder / "steps.jsonl", _step_line(step))

    def append_evaluation(self, evaluation: EvaluationRecord) -> None:
        """Add one evaluation."""
        _append(self.folder / "eval.jsonl", _evaluation_line(evaluation))

    def write_predictions(self, split: str, text: str) -> None:
        """Write the predictions of a split, whole."""
        _write_whole(self.predictions(split), text)

    def write_trace(self, pieces: Iterable[str]) -> None:
        """Write the measured timeline, whole. It can be had again by running on, so no power cut is waited for."""
        draft = self.trace.with_name(f".{self.trace.name}.draft")
        with draft.open("w") as file:
            file.writelines(pieces)
        draft.replace(self.trace)

    @property
    def trace(self) -> Path:
        """Where the measured timeline is."""
        return self.folder / "trace.json"

    def predictions(self, split: str) -> Path:
        """Return where the predictions of a split are written."""
        return self.folder / f"predictions-{split}.tsv"

    def repair(self, steps: Sequence[StepRecord], evaluations: Sequence[EvaluationRecord]) -> None:
        """Make the projections say what the store says: a crash may have left a line out, or half of one."""
        for name, lines in (
            ("steps.jsonl", [_step_line(step) for step in steps]),
            ("eval.jsonl", [_evaluation_line(evaluation) for evaluation in evaluations]),
        ):
            path, text = self.folder / name, "".join(lines)
            present = path.read_text() if path.is_file() else ""
            if present != text:
                _write_whole(path, text)

    def write_manifest(
        self, *, step: int, num_stages: int, shards: Sequence[SavedShard], about: Mapping[str, Any]
    ) -> None:
        """Complete the checkpoint of a step. The manifest comes last and whole, so where it is, all is.

        Args:
            step: whose state was saved.
            num_stages: of the layout that wrote it.
            shards: its files.
            about: what else it tells; see ``coordinator.checkpoints``.

        Raises:
            ValueError: a shard is not there as its worker described it.
        """
        folder = self.folder / "checkpoints" / f"step-{step}"
        for shard in shards:
            path = folder / shard.file
            size = path.stat().st_size if path.is_file() else None
            if size != shard.num_bytes:
                raise ValueError(f"{path} should have {shard.num_bytes} bytes, but has {size or 'none'}")
        manifest = {
            "schema": SCHEMA,
            "job": self.folder.name,
            "step": step,
            **about,
            "num_stages": num_stages,
            "spec_sha256": self.spec_sha256(),
            "plan_sha256": _sha256(self.folder / "plan.csv"),
            "shards": [
                {
                    "file": shard.file,
                    "kind": shard.kind,
                    "stage": shard.stage,
                    "sha256": shard.sha256,
                    "bytes": shard.num_bytes,
                }
                for shard in shards
            ],
        }
        _write_whole(folder / MANIFEST, json.dumps(manifest, indent=2, allow_nan=False) + "\n")

    def drop_checkpoint(self, step: int) -> None:
        """Remove what there is of a checkpoint that could not be written, unless one of that step is whole."""
        folder = self.folder / "checkpoints" / f"step-{step}"
        if not (folder / MANIFEST).is_file():
            shutil.rmtree(folder, ignore_errors=True)

    def complete_checkpoint(self, manifest: Mapping[str, Any], *, step: int) -> None:
        """Complete the checkpoint of a step by a manifest that is this job's, whosever it was before."""
        folder = self.folder / "checkpoints" / f"step-{step}"
        own = {**manifest, "job": self.folder.name, "spec_sha256": self.spec_sha256()}
        _write_whole(folder / MANIFEST, json.dumps(own, indent=2, allow_nan=False) + "\n")

    def spec_sha256(self) -> str:
        """Return the digest of the job's spec."""
        return _sha256(self.folder / "spec.json")

    def set_aside(self, step: int) -> Path:
        """Keep a checkpoint that is damaged where none is looked for; return its new folder."""
        folder = self.folder / "checkpoints" / f"step-{step}"
        aside, number = folder.with_name(f"step-{step}.damaged"), 1
        while aside.exists():
            number += 1
            aside = folder.with_name(f"step-{step}.damaged-{number}")
        return folder.rename(aside)

    def prune_checkpoints(self, *, keep: int) -> None:
        """Remove all but the ``keep`` newest complete checkpoints, and the incomplete ones before those."""
        folders = step_folders(self.folder)
        complete = sorted(step for step, path in folders.items() if (path / MANIFEST).is_file())
        oldest_kept = complete[-keep:][0] if complete else 0
        for step, path in folders.items():
            if step < oldest_kept:
                # Without its manifest it is no checkpoint any more, should the removal be cut short.
                (path / MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(path)


def _step_line(step: StepRecord) -> str:
    line: dict[str, Any] = {
        "step": step.step,
        "epoch": step.epoch,
        "loss": step.loss,
        "grad_norm": step.grad_norm,
        "learning_rate": step.learning_rate,
        "examples": step.examples,
        "tokens": step.tokens,
        "padded_tokens": step.padded_tokens,
        "seconds": step.seconds,
        "skipped": step.skipped,
    }
    if step.loss_scale is not None:
        line["loss_scale"] = step.loss_scale
    if step.rows is not None:
        line["rows"] = step.rows
    return json.dumps(line, allow_nan=False) + "\n"


def _evaluation_line(evaluation: EvaluationRecord) -> str:
    line: dict[str, Any] = {
        "step": evaluation.step,
        "split": evaluation.split,
        "examples": evaluation.examples,
        "loss": evaluation.loss,
        **dict(evaluation.metrics),
    }
    if evaluation.reason is not None:
        line["reason"] = evaluation.reason
    return json.dumps(line, allow_nan=False) + "\n"


def _append(path: Path, line: str) -> None:
    """Add a line in one write, so that a reader never sees half of one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, after a power cut too."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
