"""`takt export` with the real tokenizer program, from a checkpoint that the test writes."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from coordinator.cli.app import main
from coordinator.spec import parse_spec, to_json

SPEC = {
    "name": "demo",
    "model": {"config": {"model_type": "bert", "num_hidden_layers": 2}},
    "data": {"task": "demo"},
}


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Return a state folder with job `j`, whose checkpoint of step 4 has one shard."""
    job = tmp_path / "state" / "jobs" / "j"
    checkpoint = job / "checkpoints" / "step-4"
    checkpoint.mkdir(parents=True)
    (job / "spec.json").write_text(to_json(parse_spec(SPEC)))
    save_file({"classifier.bias": np.array([1.0, 2.0], np.float32)}, checkpoint / "stage-000.safetensors")
    (checkpoint / "config.json").write_text('{"model_type": "bert"}')
    files = {"stage-000.safetensors": "parameters", "config.json": "model"}
    shards = [
        {
            "file": name,
            "kind": kind,
            "stage": 0,
            "sha256": hashlib.sha256((checkpoint / name).read_bytes()).hexdigest(),
            "bytes": (checkpoint / name).stat().st_size,
        }
        for name, kind in files.items()
    ]
    (checkpoint / "manifest.json").write_text(json.dumps({"step": 4, "num_stages": 1, "shards": shards}))
    return tmp_path / "state"


@pytest.mark.parametrize("already_there", [False, True])
def test_export_writes_weights_config_and_tokenizer_and_nothing_else(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], already_there: bool
) -> None:
    out = tmp_path / "deep" / "out"
    if already_there:
        out.mkdir(parents=True)
    assert main(["export", "j", "--state-dir", str(state_dir), "--out", str(out), "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"schema": "takt/v1", "job": "j", "step": 4, "folder": str(out)}
    np.testing.assert_array_equal(load_file(out / "model.safetensors")["classifier.bias"], [1.0, 2.0])
    assert json.loads((out / "config.json").read_text()) == {"model_type": "bert"}
    assert (out / "tokenizer.json").is_file()
    assert (out / "model.safetensors").stat().st_mode & 0o044
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_export_whose_tokenizer_cannot_be_saved_is_refused_and_leaves_nothing(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state_dir / "jobs" / "j" / "spec.json").write_text("{}")
    assert main(["export", "j", "--state-dir", str(state_dir), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: the tokenizer cannot be saved: ")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
