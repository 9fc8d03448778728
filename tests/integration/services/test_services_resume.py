"""Jobs that go on: from their own checkpoints after any end, and from those of other jobs at other layouts."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.services import programs
from tests.integration.services.faults import Faults
from tests.integration.services.job_files import PLAIN, write_job
from tests.integration.services.programs import start_takt, takt
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.weights import assert_same_bits, difference, saved

pytestmark = pytest.mark.timeout(240)

NUM_STEPS = 6
STOP_SECONDS = 20.0
"""What a coordinator without its `takt run` gets to end a job that stands still."""
LONG: Mapping[str, Any] = {"train.epochs": 2, "checkpoint.every_steps": 2, "checkpoint.keep": 3}
"""Three steps an epoch, with dropout; checkpoints after steps 2, 4 and 6."""
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "one-stage": {"parallel.pp": 1},
    "four-stages": {"parallel.pp": 4},
    "uneven": {"parallel.layers_per_stage": [3, 1]},
    "interleaved": {"schedule.name": "interleaved", "schedule.num_chunks": 2},
}


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """Return a job's steps without what is measured."""
    return [
        {key: value for key, value in line.items() if key != "seconds"} for line in lines_of(folder / "steps.jsonl")
    ]


def test_job_goes_on_from_another_at_every_layout_with_the_same_bits(up: Standing, tmp_path: Path) -> None:
    up.submit(write_job(tmp_path / "whole.yaml", LONG), "go-whole")
    assert up.end_of("go-whole")["state"] == "SUCCEEDED"
    whole, steps = saved(up.folder("go-whole"), step=NUM_STEPS), steps_of(up.folder("go-whole"))
    for name, layout in LAYOUTS.items():
        job = f"go-{name}"
        up.submit(write_job(tmp_path / f"{name}.yaml", {**LONG, **layout, "checkpoint.from": "go-whole@2"}), job)
        status = up.end_of(job)
        assert (status["state"], status["step"]) == ("SUCCEEDED", NUM_STEPS), status["reason"]
        assert steps_of(up.folder(job)) == steps[2:]
        assert_same_bits(saved(up.folder(job), step=NUM_STEPS), whole)


def test_job_goes_on_from_another_with_two_replicas_to_rounding(up: Standing, tmp_path: Path) -> None:
    plain = {**LONG, "model.config": dict(PLAIN)}
    up.submit(write_job(tmp_path / "whole.yaml", plain), "plain-whole")
    assert up.end_of("plain-whole")["state"] == "SUCCEEDED"
    up.submit(
        write_job(tmp_path / "dp.yaml", {**plain, "parallel.dp": 2, "checkpoint.from": "plain-whole@4"}), "plain-dp"
    )
    assert up.end_of("plain-dp")["state"] == "SUCCEEDED"
    whole, replicas = (saved(up.folder(job), step=NUM_STEPS) for job in ("plain-whole", "plain-dp"))
    assert 0 < difference(replicas, whole) < 1e-5
    rates = [[step["learning_rate"] for step in steps_of(up.folder(job))] for job in ("plain-whole", "plain-dp")]
    assert rates[1] == rates[0][4:]


def test_run_that_was_killed_goes_on_under_its_id_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed twice, at a step behind a checkpoint, with all that it had started; then after its end once more."""
    job_file, state_dir = write_job(tmp_path / "job.yaml", LONG), tmp_path / "state"
    run = ("run", job_file, "--state-dir", state_dir, "--id")
    calm = takt(*run, "calm")
    assert calm.code == 0, calm.err
    for step in (4, 6):
        faults = Faults(tmp_path / f"faults-{step}")
        faults.ask("shaken", "hold", stage=1, step=step)
        with start_takt(*run, "shaken", env=faults.environment) as program:
            faults.reached("shaken")
            os.kill(program.pid, signal.SIGKILL)
            monkeypatch.setattr(programs, "_LEFT_OVER_SECONDS", STOP_SECONDS)
            program.end(limit_seconds=10)
    finished = takt(*run, "shaken", "--output", "json")
    assert finished.code == 0, finished.err
    assert finished.document["attempt"] == 3
    folders = [state_dir / "jobs" / job for job in ("calm", "shaken")]
    assert steps_of(folders[1]) == steps_of(folders[0])
    assert_same_bits(*(saved(folder, step=NUM_STEPS) for folder in folders))
    again = takt(*run, "shaken", "--output", "json")
    assert (again.code, again.document["attempt"]) == (0, 3)


def test_damaged_checkpoint_is_set_aside_and_the_one_before_it_used_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_file, state_dir = write_job(tmp_path / "job.yaml", LONG), tmp_path / "state"
    run = ("run", job_file, "--state-dir", state_dir, "--id", "hurt")
    faults = Faults(tmp_path / "faults")
    faults.ask("hurt", "hold", stage=1, step=6)
    with start_takt(*run, env=faults.environment) as program:
        faults.reached("hurt")
        os.kill(program.pid, signal.SIGKILL)
        monkeypatch.setattr(programs, "_LEFT_OVER_SECONDS", STOP_SECONDS)
        program.end(limit_seconds=10)
    shard = state_dir / "jobs" / "hurt" / "checkpoints" / "step-4" / "stage-001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    finished = takt(*run, "--output", "json")
    assert finished.code == 0, finished.err
    starting = [change for change in finished.document["history"] if change["state"] == "STARTING"][-1]
    assert "step-4/stage-001.safetensors does not have its SHA-256; it is kept as step-4.damaged" in starting["reason"]
    assert "to go on after step 2" in starting["reason"]
    assert [step["step"] for step in steps_of(state_dir / "jobs" / "hurt")] == [1, 2, 3, 4, 5, 6]
