"""What changes numbers and what does not, through all services: precision, shared weights, objectives, freezing."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from dataloader_svc.demo import demo_splits
from dataloader_svc.splits import SplitName
from tests.integration.services.job_files import TINY, save_tiny_bert, sst2_rows, write_job, write_sst2
from tests.integration.services.programs import takt
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.weights import assert_same_bits, exported

pytestmark = pytest.mark.timeout(240)

GPT2 = {"model_type": "gpt2", "n_layer": 4, "n_embd": 16, "n_head": 2, "n_positions": 32}
ALBERT = {**TINY, "model_type": "albert", "embedding_size": 8, "hidden_dropout_prob": 0.1}
LARGEST_SCALE = 2.0**32


class Jobs:
    """Jobs of one test, run one after the other or side by side."""

    def __init__(self, up: Standing, folder: Path) -> None:
        self._up = up
        self._folder = folder

    def submit(self, job: str, changes: dict[str, Any]) -> None:
        self._up.submit(write_job(self._folder / f"{job}.json", changes), job)

    def folder(self, job: str) -> Path:
        """Wait for a job's success; return its folder."""
        status = self._up.end_of(job)
        assert status["state"] == "SUCCEEDED", status["reason"]
        return self._up.folder(job)

    def failure(self, job: str) -> tuple[Path, dict[str, Any]]:
        """Wait for a job's failure; return its folder and its error."""
        status = self._up.end_of(job)
        assert status["state"] == "FAILED", status["reason"]
        error: dict[str, Any] = status["error"]
        return self._up.folder(job), error

    def weights(self, job: str) -> dict[str, torch.Tensor]:
        self.folder(job)
        return exported(job, state_dir=self._up.state_dir, out=self.export_of(job))

    def export_of(self, job: str) -> Path:
        """Return the folder that ``weights`` writes."""
        return self._folder / f"{job}-model"

    def same_bits(self, changes: dict[str, Any], layouts: dict[str, dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Hold that one job has the same losses and weights in all layouts; return the weights."""
        for job, layout in layouts.items():
            self.submit(job, changes | layout)
        first, *others = layouts
        expected = self.weights(first)
        losses = [step["loss"] for step in lines_of(self.folder(first) / "steps.jsonl")]
        assert len(set(losses)) == len(losses)
        for job in others:
            assert [step["loss"] for step in lines_of(self.folder(job) / "steps.jsonl")] == losses, job
            assert_same_bits(self.weights(job), expected)
        return expected


@pytest.fixture
def jobs(up: Standing, tmp_path: Path) -> Jobs:
    """Return what runs jobs."""
    return Jobs(up, tmp_path)


def test_bf16_gives_the_same_bits_on_any_stages_whatever_travels(jobs: Jobs) -> None:
    layouts = {
        "bf16-1": {"parallel.pp": 1},
        "bf16-2": {"parallel.pp": 2, "train.recompute": "full"},
        "bf16-4": {"parallel.pp": 4, "train.boundary_dtype": "fp32", "schedule.name": "zbh1"},
    }
    weights = jobs.same_bits({"train.precision": "bf16"}, layouts)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


def test_fp16_overflow_skips_the_step_everywhere_and_halves_the_scale(jobs: Jobs) -> None:
    """The first scales are far too large for fp16, whose largest number is 65,504."""
    changes = {
        "train.precision": "fp16",
        "train.epochs": 12,
        "train.learning_rate": 1e-3,
        "train.loss_scale": {"initial": LARGEST_SCALE, "max": LARGEST_SCALE},
    }
    jobs.submit("fp16", changes)
    steps = lines_of(jobs.folder("fp16") / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(1, 37))
    skipped = [step["skipped"] for step in steps]
    assert skipped[0]
    assert 5 < skipped.count(True) < 36, "a loss of about 0.7 over 16 rows overflows at 2**32, and not at 2**0"
    scale, updates, warmup = LARGEST_SCALE, 0, 3
    for step in steps:
        assert step["loss_scale"] == scale
        assert step["learning_rate"] == pytest.approx(1e-3 * min(updates / warmup, (36 - updates) / (36 - warmup)))
        assert math.isfinite(step["loss"])
        if step["skipped"]:
            assert step["grad_norm"] is None
            scale /= 2
        else:
            assert math.isfinite(step["grad_norm"])
            updates += 1


def test_update_that_spoils_the_weights_fails_the_job_and_is_never_saved(jobs: Jobs) -> None:
    """The only loss and gradient are those of the sound weights before it."""
    changes = {"train.learning_rate": 1e39, "train.lr_schedule": "constant", "train.epochs": None, "train.max_steps": 1}
    jobs.submit("spoilt", changes)
    folder, error = jobs.failure("spoilt")
    assert (error["type"], error["step"]) == ("NonFiniteError", 1)
    assert "is not finite after the last update" in error["message"]
    assert not list(folder.rglob("manifest.json"))


def test_h77_masked_lm_with_tied_weights_is_one_model_on_any_stages(jobs: Jobs) -> None:
    changes = {"train.objective": "masked_lm", "eval.at_end": True, "train.max_grad_norm": 0.5}
    layouts = {
        "mlm-1": {"parallel.pp": 1},
        "mlm-2": {"parallel.pp": 2, "train.recompute": 1},
        "mlm-v": {"parallel.pp": 2, "schedule.name": "zbv", "schedule.num_chunks": 2},
    }
    weights = jobs.same_bits(changes, layouts)
    assert len(weights) == 74
    _, found = AutoModelForMaskedLM.from_pretrained(jobs.export_of("mlm-2"), output_loading_info=True)
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    first, *others = (lines_of(jobs.folder(job) / "eval.jsonl") for job in layouts)
    assert all(other == first for other in others)
    assert first[0]["perplexity"] == pytest.approx(math.exp(first[0]["loss"]))


def test_causal_lm_is_evaluated_over_every_token_once(jobs: Jobs) -> None:
    """On two replicas; expected is transformers' own loss of each row of the validation split, weighed by tokens."""
    changes = {
        "model.config": GPT2,
        "train.objective": "causal_lm",
        "eval.at_end": True,
        "parallel": {"pp": 2, "dp": 2},
    }
    jobs.submit("clm", changes)
    jobs.weights("clm")
    model = AutoModelForCausalLM.from_pretrained(jobs.export_of("clm")).eval()
    tokenizer = AutoTokenizer.from_pretrained(jobs.export_of("clm"))
    total, count = 0.0, 0
    for sentence in demo_splits()[SplitName.VALIDATION].first:
        ids = tokenizer(sentence, return_tensors="pt").input_ids
        with torch.no_grad():
            total += model(input_ids=ids, labels=ids).loss.item() * (ids.shape[1] - 1)
        count += ids.shape[1] - 1
    (found,) = lines_of(jobs.folder("clm") / "eval.jsonl")
    assert found["examples"] == 400
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)


def test_albert_whose_layers_are_one_is_stored_once_and_the_same_on_any_stages(jobs: Jobs) -> None:
    layouts = {"albert-1": {"parallel.pp": 1}, "albert-4": {"parallel.pp": 4}}
    jobs.same_bits({"model.config": ALBERT}, layouts)
    _, found = AutoModelForSequenceClassification.from_pretrained(jobs.export_of("albert-4"), output_loading_info=True)
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]


def test_h56_frozen_layers_stay_and_the_others_learn(jobs: Jobs, tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path / "tiny")
    before = load_file(folder / "model.safetensors")
    changes = {
        "model": {"pretrained": str(folder)},
        "train.frozen_layers": 2,
        "train.recompute": "full",
    }
    source = _sentences(tmp_path / "glue")
    jobs.submit("frozen", changes | {"data": {"task": "sst2", "source": str(source), "max_length": 32}})
    after = jobs.weights("frozen")
    frozen = ("bert.embeddings.", "bert.encoder.layer.0.", "bert.encoder.layer.1.")
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        if name.endswith("attention.self.key.bias"):
            continue  # its gradient is rounding, which may be nothing at all
        assert torch.equal(after[name], tensor) is name.startswith(frozen), name


def _sentences(source: Path) -> Path:
    write_sst2(source, sst2_rows(8), split="dev")
    return write_sst2(source, sst2_rows(33))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model.config": {"model_type": "t5"}}, ("t5", "bert", "albert", "llama")),
        ({"train.objective": "causal_lm"}, ("causal_lm", "bert", "gpt2")),
        ({"train.frozen_layers": 5}, ("frozen_layers", "4")),
        ({"train.recompute": [1, 9]}, ("recompute", "stage 1", "9")),
        ({"train.loss_scale": {"initial": 0.5}}, ("loss_scale", "initial")),
    ],
    ids=["family", "objective", "frozen", "recompute", "scale"],
)
def test_what_cannot_be_trained_is_refused_before_anything_starts(
    changes: dict[str, Any], told: tuple[str, ...], tmp_path: Path
) -> None:
    finished = takt("run", write_job(tmp_path / "job.yaml", changes), "--state-dir", tmp_path / "state")
    assert finished.code == 2, finished.err
    for word in told:
        assert word in finished.err, finished.err
    assert not list((tmp_path / "state").glob("jobs/*"))
