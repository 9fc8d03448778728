"""What tests of real processes share, because starting it takes seconds."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.services.job_files import write_job
from tests.integration.services.programs import Finished, takt
from tests.integration.services.standing import Standing, takt_up


@dataclass(frozen=True)
class Trained:
    """A job that ``takt run`` has carried out."""

    job_file: Path
    state_dir: Path
    job: str
    finished: Finished

    @property
    def folder(self) -> Path:
        """Of the job's files."""
        return self.state_dir / "jobs" / self.job


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return the demo job that ``takt run`` trains on two stages, with dropout."""
    folder = tmp_path_factory.mktemp("trained")
    job_file = write_job(folder / "job.yaml", {"eval.at_end": True})
    state_dir = folder / "state"
    finished = takt("run", job_file, "--id", "first", "--state-dir", state_dir, "--output", "json")
    return Trained(job_file, state_dir, "first", finished)


@pytest.fixture(scope="session")
def _four_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with takt_up(tmp_path_factory.mktemp("up"), num_workers=4) as standing:
        yield standing


@pytest.fixture
def up(_four_slots: Standing) -> Iterator[Standing]:
    """Return ``takt up --workers 4``, the same for all tests; hold that each test leaves it as it was."""
    before = _four_slots.jobs()
    yield _four_slots
    _four_slots.end_all()
    _four_slots.assert_clean(*(_four_slots.jobs() - before))
