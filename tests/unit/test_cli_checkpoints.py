"""The list of a job's checkpoints: good, cut short, damaged and set aside ones."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from coordinator.checkpoints import Checkpoint, read_checkpoint
from coordinator.cli import checkpoint_list
from coordinator.cli.app import main
from coordinator.cli.checkpoint_list import list_checkpoints

FILES = {"stage-000.safetensors": b"abc" * 100, "stage-001.safetensors": b"z", "config.json": b"{}"}


def write_checkpoint(state_dir: Path, folder_name: str, *, step: int, epoch: int = 0, complete: bool = True) -> Path:
    folder = state_dir / "jobs" / "j" / "checkpoints" / folder_name
    folder.mkdir(parents=True)
    shards = []
    for number, (name, content) in enumerate(FILES.items()):
        (folder / name).write_bytes(content)
        kind, stage = ("model", 0) if name == "config.json" else ("parameters", number)
        digest = hashlib.sha256(content).hexdigest()
        shards.append({"file": name, "kind": kind, "stage": stage, "sha256": digest, "bytes": len(content)})
    if complete:
        manifest = {"step": step, "epoch": epoch, "num_stages": 2, "shards": shards}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        os.utime(folder / "manifest.json", (1.5, 1.5))
    return folder


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path, "step-10", step=10, epoch=1)
    write_checkpoint(tmp_path, "step-9", step=9)
    write_checkpoint(tmp_path, "step-11", step=11, complete=False)
    write_checkpoint(tmp_path, "step-8.damaged-2", step=8)
    (tmp_path / "jobs/j/checkpoints/step-x").mkdir()
    return tmp_path


def answer(state_dir: Path, capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> dict[int, Any]:
    assert main(["checkpoints", "j", "--state-dir", str(state_dir), "--output", "json", *options]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["job"]) == ("takt/v1", "j")
    return {entry["step"]: entry for entry in document["checkpoints"]}


def test_checkpoints_are_told_by_step_whatever_became_of_them(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(state_dir, capsys)
    assert list(found) == [8, 9, 10, 11]
    assert found[10] == {
        "step": 10,
        "epoch": 1,
        "time": "1970-01-01T00:00:01.500Z",
        "bytes": 303,
        "files": 3,
        "complete": True,
        "set_aside": False,
        "verified": None,
        "problem": None,
        "folder": str(state_dir / "jobs/j/checkpoints/step-10"),
    }
    assert [(entry["complete"], entry["set_aside"]) for entry in found.values()] == [
        (True, True),
        (True, False),
        (True, False),
        (False, False),
    ]
    assert (found[11]["epoch"], found[11]["bytes"], found[11]["files"], found[11]["verified"]) == (None, 303, 3, None)


def test_checkpoints_verified_exit_2_where_a_file_is_not_what_was_saved(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [entry["verified"] for entry in answer(state_dir, capsys, "--verify").values()] == [True, True, True, None]
    damaged = state_dir / "jobs/j/checkpoints/step-9/stage-001.safetensors"
    damaged.write_bytes(b"y")
    found = answer(state_dir, capsys, "--verify", code=2)
    assert [entry["verified"] for entry in found.values()] == [True, False, True, None]
    assert found[9]["problem"] == f"the checkpoint is damaged: {damaged} does not have its SHA-256"
    assert answer(state_dir, capsys)[9]["problem"] is None, "nothing was read"


def test_checkpoints_set_aside_do_not_count_as_a_failure(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state_dir / "jobs/j/checkpoints/step-8.damaged-2/config.json").unlink()
    assert answer(state_dir, capsys, "--verify")[8]["verified"] is False


def test_checkpoints_with_a_damaged_manifest_is_not_complete_and_says_why(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state_dir / "jobs/j/checkpoints/step-10/manifest.json").write_text("{")
    entry = answer(state_dir, capsys)[10]
    assert (entry["complete"], entry["bytes"], "manifest.json is no manifest" in entry["problem"]) == (False, 303, True)
    assert answer(state_dir, capsys, "--verify", code=2)[10]["verified"] is False


def test_checkpoints_for_people(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "j", "--state-dir", str(state_dir), "--verify"]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    states = [row.split(maxsplit=6)[-1].strip() for row in rows]
    assert states == ["set aside as damaged", "complete, verified", "complete, verified", "incomplete"]
    assert rows[2].split()[:2] == ["10", "1"]


def test_checkpoints_of_a_job_without_any_and_of_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "j", "--state-dir", str(tmp_path)]) == 3
    (tmp_path / "jobs" / "j").mkdir(parents=True)
    capsys.readouterr()
    assert main(["checkpoints", "j", "--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no checkpoints\n"


@pytest.mark.parametrize("verify", [False, True])
def test_checkpoints_one_that_is_removed_meanwhile_is_left_out(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    def read_late(folder: Path, *, step: int) -> Checkpoint:
        if step == 9:
            shutil.rmtree(folder)
        checkpoint = read_checkpoint(folder, step=step)
        if step == 10:
            shutil.rmtree(folder)
        return checkpoint

    monkeypatch.setattr(checkpoint_list, "read_checkpoint", read_late)
    steps = [entry.step for entry in list_checkpoints(state_dir / "jobs" / "j", verify=verify)]
    assert steps == ([8, 11] if verify else [8, 10, 11])
