"""``takt run`` and ``takt export``: what a job leaves behind."""

import hashlib
import json
import math
from pathlib import Path

import pytest

from tests.integration.services.conftest import Trained
from tests.integration.services.programs import takt
from tests.integration.services.standing import lines_of
from tests.integration.services.weights import assert_same_bits, exported

pytestmark = pytest.mark.timeout(240)

STEP_FIELDS = {
    *("step", "epoch", "loss", "grad_norm", "learning_rate", "examples", "tokens", "padded_tokens", "seconds"),
    *("skipped", "rows"),
}
STATUS_FIELDS = {
    *("id", "name", "state", "reason", "attempt", "step", "total_steps", "epoch", "loss", "examples_per_second"),
    *("eta_seconds", "created", "started", "ended", "workers", "missing_slots", "error", "history"),
}


def test_run_demo_job_exits_0_and_says_how_it_went(trained: Trained) -> None:
    assert trained.finished.code == 0, trained.finished.err
    document = trained.finished.document
    assert document.keys() >= STATUS_FIELDS
    assert (document["state"], document["step"], document["total_steps"]) == ("SUCCEEDED", 3, 3)
    assert document["error"] is None
    assert [change["state"] for change in document["history"]] == ["QUEUED", "STARTING", "RUNNING", "SUCCEEDED"]


def test_run_writes_each_step_once_with_every_field(trained: Trained) -> None:
    steps = lines_of(trained.folder / "steps.jsonl")
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert [step["examples"] for step in steps] == [16, 16, 1]
    # W is int(0.1 * 3) = 0, so the rate falls from the first step on: base * (T - u) / T
    assert [step["learning_rate"] for step in steps] == pytest.approx([1e-3, 1e-3 * 2 / 3, 1e-3 / 3])
    for step in steps:
        assert step.keys() == STEP_FIELDS
        assert (step["epoch"], step["skipped"]) == (0, False)
        assert step["seconds"] > 0
        assert 0.5 < step["loss"] < 1.0
        assert 0 < step["grad_norm"] < 10
        assert step["tokens"] >= 3 * step["examples"]
        assert step["padded_tokens"] >= 0
        assert [len(replica) for replica in step["rows"]] == [2]
        assert sum(len(microbatch) for microbatch in step["rows"][0]) == step["examples"]
    assert [len(microbatch) for microbatch in steps[2]["rows"][0]] == [1, 0]
    rows = [row for step in steps for microbatch in step["rows"][0] for row in microbatch]
    assert sorted(rows) == list(range(33))
    assert rows != sorted(rows)


def test_run_evaluates_the_held_out_rows_once(trained: Trained) -> None:
    (evaluation,) = lines_of(trained.folder / "eval.jsonl")
    assert (evaluation["step"], evaluation["split"], evaluation["examples"]) == (3, "validation", 400)
    assert evaluation["loss"] == pytest.approx(math.log(2), abs=0.05)
    assert evaluation["accuracy"] * 400 == pytest.approx(round(evaluation["accuracy"] * 400))
    assert trained.finished.document["evaluations"] == [evaluation]


def test_run_leaves_a_complete_checkpoint(trained: Trained) -> None:
    (folder,) = (trained.folder / "checkpoints").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (folder.name, manifest["schema"], manifest["job"]) == ("step-3", "takt/v1", "first")
    assert (manifest["step"], manifest["num_stages"]) == (3, 2)
    assert {shard["file"] for shard in manifest["shards"]} | {"manifest.json"} == {p.name for p in folder.iterdir()}
    for shard in manifest["shards"]:
        content = (folder / shard["file"]).read_bytes()
        assert (shard["bytes"], shard["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    spec = (trained.folder / "spec.json").read_bytes()
    plan = (trained.folder / "plan.csv").read_bytes()
    assert manifest["spec_sha256"] == hashlib.sha256(spec).hexdigest()
    assert manifest["plan_sha256"] == hashlib.sha256(plan).hexdigest()


def test_run_again_strictly_gives_the_same_bits(trained: Trained, tmp_path: Path) -> None:
    """The second run is the same job, dropout included; only the commands come one at a time."""
    finished = takt("run", trained.job_file, "--strict", "--id", "strict", "--state-dir", tmp_path / "state")
    assert finished.code == 0, finished.err
    first, second = (
        lines_of(folder / "steps.jsonl") for folder in (trained.folder, tmp_path / "state" / "jobs" / "strict")
    )
    for one, other in zip(first, second, strict=True):
        assert {**other, "seconds": one["seconds"]} == one
    assert lines_of(tmp_path / "state/jobs/strict/eval.jsonl") == lines_of(trained.folder / "eval.jsonl")
    assert_same_bits(
        exported("strict", state_dir=tmp_path / "state", out=tmp_path / "second"),
        exported("first", state_dir=trained.state_dir, out=tmp_path / "first"),
    )


def test_export_without_a_service_is_a_plain_hugging_face_folder(trained: Trained, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415  takes seconds

    weights = exported("first", state_dir=trained.state_dir, out=tmp_path / "model")
    model, loading = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(loading.values()), loading
    assert_same_bits(dict(model.state_dict()), weights)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer("good")["input_ids"]
    assert len(ids) == 3
    assert (ids[0], ids[2]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert max(ids) < model.config.vocab_size


def test_status_after_run_is_read_from_the_folder(trained: Trained) -> None:
    finished = takt("status", "first", "--state-dir", trained.state_dir, "--output", "json")
    assert finished.code == 0
    assert finished.document["state"] == "SUCCEEDED"
    assert finished.document["history"] == trained.finished.document["history"]
