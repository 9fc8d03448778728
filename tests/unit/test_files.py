import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.events import SavedShard
from coordinator.files import JobFiles
from coordinator.records import EvaluationRecord, StepRecord
from coordinator.schedule.plan import make_plan


def step(
    number: int, *, loss: float | None = 0.5, rows: tuple[tuple[tuple[int, ...], ...], ...] | None = None
) -> StepRecord:
    return StepRecord(
        step=number, epoch=0, loss=loss, grad_norm=None, learning_rate=1e-5, examples=8, tokens=90, padded_tokens=3,
        seconds=0.25, skipped=True, rows=rows,
    )  # fmt: skip


EVALUATION = EvaluationRecord(
    step=2, split="validation", examples=3, loss=0.25, metrics=(("accuracy", 0.5), ("f1", None)), reason="no rows"
)


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    files = JobFiles.of(tmp_path, "job")
    files.create('{"name": "job"}')
    return files


def shard(files: JobFiles, step: int, name: str = "stage-000.safetensors") -> SavedShard:
    folder = files.folder / "checkpoints" / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"abc")
    return SavedShard(file=name, kind="parameters", stage=0, sha256="0" * 64, num_bytes=3)


def test_create_writes_the_spec_as_given(files: JobFiles) -> None:
    assert (files.folder / "spec.json").read_text() == '{"name": "job"}'
    assert (files.folder / "logs").is_dir()
    assert sorted(path.name for path in files.folder.iterdir()) == ["logs", "spec.json"]


def test_append_step_writes_the_fields_of_the_contract(files: JobFiles) -> None:
    files.append_step(step(1, rows=(((7, 5), ()), ((6,), (4,)))))
    files.append_step(step(2, loss=None))
    lines = [json.loads(line) for line in (files.folder / "steps.jsonl").read_text().splitlines()]
    assert lines == [
        {
            "step": 1, "epoch": 0, "loss": 0.5, "grad_norm": None, "learning_rate": 1e-5, "examples": 8, "tokens": 90,
            "padded_tokens": 3, "seconds": 0.25, "skipped": True, "rows": [[[7, 5], []], [[6], [4]]],
        },
        {
            "step": 2, "epoch": 0, "loss": None, "grad_norm": None, "learning_rate": 1e-5, "examples": 8, "tokens": 90,
            "padded_tokens": 3, "seconds": 0.25, "skipped": True,
        },
    ]  # fmt: skip


def test_append_step_of_an_fp16_job_tells_the_loss_scale(files: JobFiles) -> None:
    files.append_step(replace(step(1), loss_scale=65536.0))
    (line,) = (files.folder / "steps.jsonl").read_text().splitlines()
    assert json.loads(line)["loss_scale"] == 65536.0


def test_append_step_not_a_number_is_refused(files: JobFiles) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        files.append_step(step(1, loss=float("nan")))


def test_append_evaluation_spreads_the_metrics_by_name(files: JobFiles) -> None:
    files.append_evaluation(EVALUATION)
    assert json.loads((files.folder / "eval.jsonl").read_text()) == {
        "step": 2, "split": "validation", "examples": 3, "loss": 0.25, "accuracy": 0.5, "f1": None, "reason": "no rows",
    }  # fmt: skip


@pytest.mark.parametrize("damage", ["", '{"step": 1, "epo', "all lines but the last", "all lines"])
def test_repair_damaged_projection_says_what_the_store_says(files: JobFiles, damage: str) -> None:
    steps = [step(1), step(2), step(3)]
    for each in steps:
        files.append_step(each)
    path = files.folder / "steps.jsonl"
    whole = path.read_text()
    kept = {"all lines": whole, "all lines but the last": "".join(whole.splitlines(keepends=True)[:-1])}
    path.write_text(kept.get(damage, damage))
    files.repair(steps, [EVALUATION])
    assert path.read_text() == whole
    assert len((files.folder / "eval.jsonl").read_text().splitlines()) == 1


def test_write_manifest_tells_shards_and_digests(files: JobFiles) -> None:
    plan = make_plan("1f1b", num_workers=2, num_microbatches=4)
    files.write_plan(plan)
    files.write_manifest(step=5, num_stages=2, shards=[shard(files, 5)], about={"epoch": 1})
    manifest = json.loads((files.folder / "checkpoints/step-5/manifest.json").read_text())
    assert manifest == {
        "schema": "takt/v1", "job": "job", "step": 5, "epoch": 1, "num_stages": 2,
        "spec_sha256": hashlib.sha256(b'{"name": "job"}').hexdigest(),
        "plan_sha256": hashlib.sha256((files.folder / "plan.csv").read_bytes()).hexdigest(),
        "shards": [
            {"file": "stage-000.safetensors", "kind": "parameters", "stage": 0, "sha256": "0" * 64, "bytes": 3}
        ],
    }  # fmt: skip


def test_write_manifest_shard_is_not_there_is_refused_and_leaves_none(files: JobFiles) -> None:
    whole = shard(files, 5)
    (files.folder / "checkpoints/step-5" / whole.file).write_bytes(b"ab")
    with pytest.raises(ValueError, match="should have 3 bytes, but has 2"):
        files.write_manifest(step=5, num_stages=1, shards=[whole], about={})
    assert not (files.folder / "checkpoints/step-5/manifest.json").exists()


def test_prune_checkpoints_keeps_the_newest_complete_ones_and_what_is_being_written(files: JobFiles) -> None:
    files.write_plan(make_plan("gpipe", num_workers=1, num_microbatches=1))
    for number in (10, 9, 100):
        files.write_manifest(step=number, num_stages=1, shards=[shard(files, number)], about={})
    shard(files, 5)
    shard(files, 110)
    files.prune_checkpoints(keep=2)
    assert sorted(path.name for path in (files.folder / "checkpoints").iterdir()) == ["step-10", "step-100", "step-110"]
