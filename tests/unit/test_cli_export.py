"""Export: the checkpoint that is chosen, what is refused, and what the merged files hold."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from coordinator.checkpoints import DamagedCheckpointError, NoCheckpointError, find_checkpoint, verify
from coordinator.cli.app import main
from coordinator.cli.exits import CliError
from coordinator.cli.failures import exit_code_of
from coordinator.cli.merging import merge

STAGE_0 = {"embeddings.weight": np.arange(12, dtype=np.float32).reshape(4, 3), "layer.0.bias": np.ones(3, np.float32)}
STAGE_1 = {"layer.1.bias": np.zeros(3, np.float32), "classifier.weight": np.full((2, 3), 0.5, np.float32)}


def write_checkpoint(job_folder: Path, *, step: int, num_stages: int = 2, complete: bool = True) -> Path:
    """Write a checkpoint as a coordinator and its workers would."""
    folder = job_folder / "checkpoints" / f"step-{step}"
    folder.mkdir(parents=True)
    shards = []
    for stage, tensors in enumerate((STAGE_0, STAGE_1)):
        path = folder / f"stage-{stage:03d}.safetensors"
        save_file({name: tensor + step for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
        shards.append((path, "parameters", stage))
    config = folder / "config.json"
    config.write_text('{"model_type": "bert"}')
    shards.append((config, "model", 0))
    manifest = {
        "schema": "takt/v1",
        "job": job_folder.name,
        "step": step,
        "epoch": 0,
        "num_stages": num_stages,
        "shards": [
            {
                "file": path.name,
                "kind": kind,
                "stage": stage,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "bytes": path.stat().st_size,
            }
            for path, kind, stage in shards
        ],
    }
    if complete:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_find_checkpoint_takes_the_newest_that_is_complete(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, step=9)
    write_checkpoint(tmp_path, step=10)
    write_checkpoint(tmp_path, step=11, complete=False)
    assert find_checkpoint(tmp_path, step=None).step == 10
    assert find_checkpoint(tmp_path, step=9).step == 9


def test_find_checkpoint_of_a_step_that_was_not_saved_tells_which_were(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, step=9)
    with pytest.raises(NoCheckpointError, match="no checkpoint of step 4, only of 9") as raised:
        find_checkpoint(tmp_path, step=4)
    assert exit_code_of(raised.value) == 3


def test_find_checkpoint_without_any_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NoCheckpointError, match="no complete checkpoint") as raised:
        find_checkpoint(tmp_path, step=None)
    assert exit_code_of(raised.value) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_stages": 3}, "stages \\[0, 1\\], need 0 to 2"),
        ({"step": 8}, "it is of step 8"),
        ({"shards": [{"file": "../x", "kind": "parameters", "stage": 0, "sha256": "", "bytes": 1}]}, "leads elsewhere"),
        ({"shards": None}, "is no manifest"),
    ],
)
def test_find_checkpoint_with_a_wrong_manifest_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = write_checkpoint(tmp_path, step=9) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DamagedCheckpointError, match=said):
        find_checkpoint(tmp_path, step=None)


def test_verify_of_a_shard_with_one_bit_flipped_names_the_file(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, step=9)
    path = folder / "stage-001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    shards = find_checkpoint(tmp_path, step=None).shards_of("parameters")
    verify(shards[0])
    with pytest.raises(DamagedCheckpointError, match=r"stage-001\.safetensors does not have its SHA-256"):
        verify(shards[1])


def test_verify_of_a_shard_that_is_short_or_missing_names_the_file(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, step=9)
    path = folder / "stage-000.safetensors"
    shard = find_checkpoint(tmp_path, step=None).shards_of("parameters")[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedCheckpointError, match=r"stage-000\.safetensors has \d+ bytes"):
        verify(shard)
    path.unlink()
    with pytest.raises(DamagedCheckpointError, match=r"stage-000\.safetensors is missing"):
        verify(shard)


def save_stages(folder: Path, *stages: dict[str, np.ndarray]) -> list[Path]:
    paths = [folder / f"stage-{stage:03d}.safetensors" for stage in range(len(stages))]
    for path, tensors in zip(paths, stages, strict=True):
        save_file(tensors, path)
    return paths


def test_merge_writes_every_parameter_once_and_says_that_it_is_for_torch(tmp_path: Path) -> None:
    merge(save_stages(tmp_path, STAGE_0, STAGE_1), tmp_path)
    merged = load_file(tmp_path / "model.safetensors")
    assert set(merged) == {*STAGE_0, *STAGE_1}
    for name, tensor in {**STAGE_0, **STAGE_1}.items():
        np.testing.assert_array_equal(merged[name], tensor)
    with safe_open(tmp_path / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}


def test_merge_above_the_size_limit_writes_files_with_an_index_in_the_hub_layout(tmp_path: Path) -> None:
    # 48, 12, 12 and 24 bytes, files of at most 40: the first is alone though it is larger
    merge(save_stages(tmp_path, STAGE_0, STAGE_1), tmp_path, max_file_bytes=40)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 96}
    assert set(index["weight_map"]) == {*STAGE_0, *STAGE_1}
    files = sorted(set(index["weight_map"].values()))
    assert files == [f"model-{number:05d}-of-{len(files):05d}.safetensors" for number in range(1, len(files) + 1)]
    assert len(files) > 1
    for name, file in index["weight_map"].items():
        np.testing.assert_array_equal(load_file(tmp_path / file)[name], {**STAGE_0, **STAGE_1}[name])
    assert not (tmp_path / "model.safetensors").exists()


def test_merge_of_a_parameter_that_two_stages_share_writes_it_once(tmp_path: Path) -> None:
    merge(save_stages(tmp_path, STAGE_0, {**STAGE_1, "layer.0.bias": STAGE_0["layer.0.bias"]}), tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == {*STAGE_0, *STAGE_1}


def test_merge_of_two_stages_that_differ_in_a_shared_parameter_is_refused(tmp_path: Path) -> None:
    paths = save_stages(tmp_path, STAGE_0, {"layer.0.bias": np.zeros(3, np.float32)})
    with pytest.raises(CliError, match=r"differ in layer\.0\.bias"):
        merge(paths, tmp_path)


def test_merge_of_a_file_that_is_no_shard_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stage-000.safetensors"
    path.write_bytes(b"not a shard")
    with pytest.raises(CliError, match="cannot be read"):
        merge([path], tmp_path)


def export(state_dir: Path, out: Path, *options: str, job: str = "j") -> int:
    return main(["export", job, "--state-dir", str(state_dir), "--out", str(out), *options])


def test_export_of_a_damaged_checkpoint_names_the_file_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_checkpoint(tmp_path / "state" / "jobs" / "j", step=3)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    assert export(tmp_path / "state", tmp_path / "out") == 2
    assert "config.json" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]


def test_export_into_a_folder_with_files_is_a_conflict_and_leaves_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "state" / "jobs" / "j", step=3)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    assert export(tmp_path / "state", out) == 4
    assert f"--out {out}" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("job", ["nobody", "..", "../jobs/j", "."])
def test_export_of_an_unknown_job_is_not_found(tmp_path: Path, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(tmp_path / "state" / "jobs" / "j", step=3)
    assert export(tmp_path / "state", tmp_path / "out", job=job) == 3
    assert capsys.readouterr().err.startswith("error: ")
