"""One job under every schedule, given to one ``takt up``: the same losses, evaluation and bits.

What a job costs here is its processes, not its steps: as few jobs as show every schedule, replicas and strict commands.
"""

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
    "interleaved": ({"num_chunks": 2}, LOOPING),
    "looped_bfs": ({"num_chunks": 2}, LOOPING),
    "zbh1": ({}, [[0], [1]]),
    "zbh2": ({}, [[0], [1]]),
    "zbv": ({"num_chunks": 2}, V_SHAPED),
}
"""Keys beside the name, and the stages of each worker on two workers; dualpipev is run with strict commands."""


class Ended:
    """What a job left that has ended well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps = [{**step, "seconds": None} for step in lines_of(folder / "steps.jsonl")]
        self.evaluations = lines_of(folder / "eval.jsonl")
        self.tensors = saved(folder, step=3)


class Jobs:
    """The tiny job, with dropout, in four microbatches; the last of its three steps has a single row."""

    def __init__(self, up: Standing, folder: Path) -> None:
        self._up = up
        self._folder = folder

    def file(self, job: str, schedule: dict[str, Any], **sections: Any) -> Path:
        changes = {"schedule": {"num_microbatches": 4, **schedule}, "eval.at_end": True, **sections}
        return write_job(self._folder / f"{job}.yaml", changes)

    def submit(self, job: str, schedule: dict[str, Any], **sections: Any) -> None:
        self._up.submit(self.file(job, schedule, **sections), job)

    def ended(self, job: str, *, stages: list[list[int]]) -> Ended:
        """Wait for a job's end on workers that have these stages."""
        status = self._up.in_state(job, "SUCCEEDED", limit_seconds=END_SECONDS)
        assert [worker["stages"] for worker in status["workers"]] == stages
        return Ended(self._up.folder(job))


@pytest.fixture(scope="module")
def jobs(_four_slots: Standing, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return Jobs(_four_slots, tmp_path_factory.mktemp("schedules"))


@pytest.fixture(scope="module")
def expected(jobs: Jobs) -> Ended:
    """Return the job under 1f1b."""
    jobs.submit("1f1b", {"name": "1f1b"})
    ended = jobs.ended("1f1b", stages=[[0], [1]])
    assert len({step["loss"] for step in ended.steps}) == 3
    assert len(ended.evaluations) == 1
    return ended


def assert_same(found: Ended, expected: Ended) -> None:
    assert found.steps == expected.steps
    assert found.evaluations == expected.evaluations
    assert_same_bits(found.tensors, expected.tensors)


def test_every_schedule_gives_the_numbers_and_bits_of_1f1b(
    jobs: Jobs, expected: Ended, up: Standing, tmp_path: Path
) -> None:
    for name, (keys, _) in SCHEDULES.items():
        jobs.submit(name, {"name": name, **keys})
    for name, (_, stages) in SCHEDULES.items():
        assert_same(jobs.ended(name, stages=stages), expected)

    exports = [exported(job, state_dir=up.state_dir, out=tmp_path / job) for job in ("1f1b", "interleaved", "zbv")]
    for found_export in exports[1:]:
        assert_same_bits(found_export, exports[0])

    plan = up.folder("zbv") / "plan.csv"
    jobs.submit("custom", {"name": "custom", "num_chunks": 2, "file": str(plan)})
    custom = jobs.ended("custom", stages=V_SHAPED)
    assert (custom.folder / "plan.csv").read_text() == plan.read_text()
    assert_same(custom, expected)


def test_replicas_under_chunks_and_a_split_backward_give_the_bits_of_1f1b(jobs: Jobs, up: Standing) -> None:
    del up  # holds that nothing is left
    for name, keys in (("1f1b", {}), ("zbv", {"num_chunks": 2})):
        jobs.submit(f"{name}-dp2", {"name": name, **keys}, parallel={"pp": 2, "dp": 2})
    assert_same(jobs.ended("zbv-dp2", stages=V_SHAPED * 2), jobs.ended("1f1b-dp2", stages=[[0], [1]] * 2))


def test_strict_commands_of_backwards_whole_and_split_give_the_bits_of_1f1b(
    jobs: Jobs, expected: Ended, tmp_path: Path
) -> None:
    job_file = jobs.file("strict", {"name": "dualpipev", "num_chunks": 2})
    options = ("--strict", "--id", "strict", "--state-dir", tmp_path / "state", "--output", "json")
    finished = takt("run", job_file, *options)
    assert finished.code == 0, finished.err
    assert [worker["stages"] for worker in finished.document["workers"]] == V_SHAPED
    assert_same(Ended(tmp_path / "state/jobs/strict"), expected)
