"""One job under every schedule, given to one ``takt up``: the same losses, evaluation and bits."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.services.job_files import write_job
from tests.integration.services.programs import takt
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.weights import assert_same_bits, exported, saved

pytestmark = pytest.mark.timeout(300)

END_SECONDS = 120.0
LOOPING = [[0, 2], [1, 3]]
V_SHAPED = [[0, 3], [1, 2]]
SCHEDULES: dict[str, tuple[dict[str, Any], list[list[int]]]] = {
    "1f1b": ({}, [[0], [1]]),
    "interleaved": ({"num_chunks": 2}, LOOPING),
    "looped_bfs": ({"num_chunks": 2}, LOOPING),
    "zbh1": ({}, [[0], [1]]),
    "zbh2": ({}, [[0], [1]]),
    "zbv": ({"num_chunks": 2}, V_SHAPED),
    "dualpipev": ({"num_chunks": 2}, V_SHAPED),
}
"""Keys beside the name, and the stages of each worker on two workers."""


class Ended:
    """A job that has ended well."""

    def __init__(self, up: Standing, job: str) -> None:
        self.status = up.end_of(job, limit_seconds=END_SECONDS)
        assert self.status["state"] == "SUCCEEDED", self.status["reason"]
        self.folder = up.folder(job)
        self.steps = [{**step, "seconds": None} for step in lines_of(self.folder / "steps.jsonl")]
        self.evaluations = lines_of(self.folder / "eval.jsonl")
        self.tensors = saved(self.folder, step=3)

    @property
    def stages(self) -> list[list[int]]:
        """Stages of each worker."""
        return [worker["stages"] for worker in self.status["workers"]]


def submit(up: Standing, folder: Path, job: str, schedule: dict[str, Any], **sections: Any) -> None:
    """Submit the tiny job, with dropout, in four microbatches; the last of its three steps has a single row."""
    changes = {"schedule": {"num_microbatches": 4, **schedule}, "eval.at_end": True, **sections}
    up.submit(write_job(folder / f"{job}.yaml", changes), job)


def test_every_schedule_gives_the_numbers_and_bits_of_1f1b(up: Standing, tmp_path: Path) -> None:
    for name, (keys, _) in SCHEDULES.items():
        submit(up, tmp_path, name, {"name": name, **keys})
    expected = Ended(up, "1f1b")
    assert len(expected.steps) == 3
    assert len(expected.evaluations) == 1
    for name, (_, stages) in SCHEDULES.items():
        found = Ended(up, name)
        assert found.stages == stages
        assert found.steps == expected.steps, name
        assert found.evaluations == expected.evaluations, name
        assert_same_bits(found.tensors, expected.tensors)

    exports = [exported(job, state_dir=up.state_dir, out=tmp_path / job) for job in ("1f1b", "interleaved", "zbv")]
    for found_export in exports[1:]:
        assert_same_bits(found_export, exports[0])

    plan = up.folder("zbv") / "plan.csv"
    submit(up, tmp_path, "custom", {"name": "custom", "num_chunks": 2, "file": str(plan)})
    custom = Ended(up, "custom")
    assert custom.stages == V_SHAPED
    assert (custom.folder / "plan.csv").read_text() == plan.read_text()
    assert (custom.steps, custom.evaluations) == (expected.steps, expected.evaluations)
    assert_same_bits(custom.tensors, expected.tensors)


def test_replicas_under_chunks_and_split_backward_give_the_bits_of_1f1b(up: Standing, tmp_path: Path) -> None:
    sections = {"parallel": {"pp": 2, "dp": 2}}
    for name in ("1f1b", "interleaved", "zbh1", "zbv"):
        submit(up, tmp_path, f"{name}-dp2", {"name": name, **SCHEDULES[name][0]}, **sections)
    expected = Ended(up, "1f1b-dp2")
    for name in ("interleaved", "zbh1", "zbv"):
        found = Ended(up, f"{name}-dp2")
        assert found.stages == SCHEDULES[name][1] * 2
        assert (found.steps, found.evaluations) == (expected.steps, expected.evaluations)
        assert_same_bits(found.tensors, expected.tensors)


def test_strict_commands_of_a_split_backward_give_the_same_bits(up: Standing, tmp_path: Path) -> None:
    submit(up, tmp_path, "whole", {"name": "zbv", "num_chunks": 2})
    whole, state_dir = Ended(up, "whole"), tmp_path / "state"
    finished = takt("run", tmp_path / "whole.yaml", "--strict", "--id", "strict", "--state-dir", state_dir)
    assert finished.code == 0, finished.err
    steps = [{**step, "seconds": None} for step in lines_of(state_dir / "jobs/strict/steps.jsonl")]
    assert steps == whole.steps
    assert lines_of(state_dir / "jobs/strict/eval.jsonl") == whole.evaluations
    assert_same_bits(saved(state_dir / "jobs/strict", step=3), whole.tensors)
