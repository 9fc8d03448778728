"""The memory of workers in commands: what `takt plan` prints, and what `takt validate` refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.cli import preflight
from coordinator.cli.app import main
from coordinator.facts import DataFacts, ModelFacts
from coordinator.parts import MicrobatchSize, ModelPart, ModelParts
from coordinator.spec import JobSpec
from tests.unit.cli_facts import facts

MIB = 2**20
LAYER = ModelPart(parameters=MIB, tensors=1, activation_bytes=MicrobatchSize(row=MIB))
PARTS = ModelParts(embeddings=ModelPart(), layer=LAYER, head=ModelPart(), stage=ModelPart())
JOB = (
    "name: a\nmodel: {config: {model_type: bert}}\ndata: {task: demo}\ntrain: {global_batch_size: 8}\n"
    "schedule: {name: gpipe, num_microbatches: 8}\n"
)


def known(spec: JobSpec, *, with_parts: bool = False) -> tuple[ModelFacts, DataFacts]:
    """Return facts whose parts are there where they were asked for."""
    model, data = facts(spec)
    wanted = with_parts or spec.limits.device_memory_bytes is not None
    return replace(model, parts=PARTS) if wanted else model, data


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a job of six layers on two workers; each holds three layers for eight rows."""
    monkeypatch.setattr(preflight, "local_facts", known)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_plan_of_a_job_tells_the_memory_of_each_worker(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--output", "json"]) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert [each["worker"] for each in memory] == [0, 1]
    for each in memory:
        assert (each["parameters"], each["gradients"], each["optimizer"]) == (12 * MIB, 12 * MIB, 24 * MIB + 12)
        assert each["activations"] == 24 * MIB
        assert each["total"] == 72 * MIB + 12 + each["borders"]
    assert main(["plan", str(job)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("memory, worker")]
    assert len(lines) == 2
    assert lines[1].startswith("memory, worker 1   72.0 MiB  (parameters 12.0 MiB, gradients 12.0 MiB, optimizer ")


def test_plan_of_sizes_alone_tells_no_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--stages", "2"]) == 0
    assert "memory" not in capsys.readouterr().out


@pytest.mark.parametrize("command", [["validate"], ["plan"]], ids=str)
def test_job_beyond_the_memory_of_its_devices_is_refused_with_what_to_change(
    command: list[str], job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, str(job), "--set", "limits.device_memory_bytes=70MiB"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: limits.device_memory_bytes: is 70MiB, but worker ")
    assert "activations 24.0 MiB" in told
    assert "train.recompute: full, which takes it to 51." in told


def test_job_within_the_memory_of_its_devices_is_good(job: Path) -> None:
    assert main(["validate", str(job), "--set", "limits.device_memory_bytes=73MiB"]) == 0
    recomputed = ["--set", "train.recompute=full", "--set", "limits.device_memory_bytes=52MiB"]
    assert main(["validate", str(job), *recomputed]) == 0


@pytest.mark.parametrize("value", ["0", "16 GB", "16gib", "-1", "1e3", "0GiB", "0.000GiB", "016GiB"])
def test_memory_that_is_no_size_is_refused(value: str, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(job), "--set", f"limits.device_memory_bytes={value}"]) == 2
    told = capsys.readouterr().err
    assert "needs an integer from 1 to 9223372036854775807, or text such as 16GiB, or null" in told
