"""One job in several layouts, given to one ``takt up``: the numbers do not depend on the layout."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.services.conftest import Trained
from tests.integration.services.job_files import PLAIN, write_job
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.weights import assert_same_bits, difference, exported

pytestmark = pytest.mark.timeout(240)

WITHOUT_DROPOUT = {
    "model.config": dict(PLAIN),
    "data.max_train_rows": 42,
    "parallel.pp": 1,
    "schedule.num_microbatches": 4,
}
"""The last batch has 10 rows."""
END_SECONDS = 120.0


@pytest.fixture
def layouts(up: Standing, tmp_path: Path) -> "Layouts":
    """Return what submits one job in several layouts."""
    return Layouts(up, tmp_path)


def rows_of(step: dict[str, Any]) -> list[int]:
    return sorted(row for replica in step["rows"] for microbatch in replica for row in microbatch)


class Layouts:
    """One job after the other, or side by side where there are slots."""

    def __init__(self, up: Standing, folder: Path) -> None:
        self._up = up
        self._folder = folder

    def submit(self, job: str, changes: dict[str, Any]) -> None:
        self._up.submit(write_job(self._folder / f"{job}.yaml", changes), job)

    def steps(self, job: str) -> list[dict[str, Any]]:
        """Wait for a job's success; return its steps without what depends on the machine."""
        status = self._up.end_of(job, limit_seconds=END_SECONDS)
        assert status["state"] == "SUCCEEDED", status["reason"]
        return [{**step, "seconds": None} for step in lines_of(self._up.folder(job) / "steps.jsonl")]

    def workers(self, job: str) -> list[dict[str, Any]]:
        """Return what the status of an ended job tells of its workers."""
        workers: list[dict[str, Any]] = self._up.end_of(job, limit_seconds=END_SECONDS)["workers"]
        return workers

    def weights(self, job: str) -> dict[str, Any]:
        return exported(job, state_dir=self._up.state_dir, out=self._folder / job)


def test_pp_1_and_4_and_uneven_stages_give_the_bits_of_pp_2_with_dropout(
    layouts: Layouts, trained: Trained, tmp_path: Path
) -> None:
    """On four stages there are fewer microbatches than stages."""
    layouts.submit("pp1", {"parallel.pp": 1})
    layouts.submit("pp4", {"parallel.pp": 4})
    layouts.submit("uneven", {"parallel.layers_per_stage": [1, 3]})
    expected_steps = [{**step, "seconds": None} for step in lines_of(trained.folder / "steps.jsonl")]
    expected = exported("first", state_dir=trained.state_dir, out=tmp_path / "first")
    for job in ("pp1", "pp4", "uneven"):
        assert layouts.steps(job) == expected_steps
        assert_same_bits(layouts.weights(job), expected)


def test_h65_replicas_of_one_stage_give_the_numbers_of_one(layouts: Layouts) -> None:
    layouts.submit("one", WITHOUT_DROPOUT)
    layouts.submit("replicated", WITHOUT_DROPOUT | {"parallel.dp": 2})
    expected, found = layouts.steps("one"), layouts.steps("replicated")
    assert [len(microbatch) for microbatch in expected[2]["rows"][0]] == [3, 3, 2, 2]
    assert [[len(microbatch) for microbatch in replica] for replica in found[2]["rows"]] == [[2, 1, 1, 1]] * 2
    for step, reference in zip(found, expected, strict=True):
        assert rows_of(step) == rows_of(reference)
        assert step["loss"] == pytest.approx(reference["loss"], abs=1e-6)
        assert step["grad_norm"] == pytest.approx(reference["grad_norm"], rel=1e-5)
        assert step["learning_rate"] == reference["learning_rate"]
    one = layouts.weights("one")
    assert difference(layouts.weights("replicated"), one) <= 1e-6
    num_parameters = sum(tensor.numel() for tensor in one.values())
    for job, dp_ranks in (("one", [0]), ("replicated", [0, 1])):
        workers = layouts.workers(job)
        assert [(worker["dp_rank"], worker["stages"]) for worker in workers] == [(rank, [0]) for rank in dp_ranks]
        assert {worker["parameters"] for worker in workers} == {num_parameters}
