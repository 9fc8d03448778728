"""A coordinator that stands still for a while under a job."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.services.conftest import Trained
from tests.integration.services.job_files import write_job
from tests.integration.services.standing import Standing, lines_of

pytestmark = pytest.mark.timeout(240)

STILL_SECONDS = 3.0


def without_seconds(file: Path) -> list[dict[str, Any]]:
    """Return the steps of a journal without what is measured."""
    return [{key: value for key, value in line.items() if "second" not in key} for line in lines_of(file)]


def test_coordinator_that_stands_still_for_three_seconds_costs_a_job_nothing_but_time(
    up: Standing, trained: Trained, tmp_path: Path
) -> None:
    up.faults.ask("stilled", "hold", stage=1, step=2)
    up.submit(write_job(tmp_path / "job.yaml", {"eval.at_end": True}), "stilled")
    up.faults.reached("stilled")
    coordinator = up.pid_of("coordinator")
    os.kill(coordinator, signal.SIGSTOP)
    try:
        up.faults.let_go("stilled")  # the workers go on with what they have been told
        time.sleep(STILL_SECONDS)
    finally:
        os.kill(coordinator, signal.SIGCONT)
    status = up.end_of("stilled")
    assert status["state"] == "SUCCEEDED", status["reason"]
    assert status["attempt"] == 1
    assert up.pid_of("coordinator") == coordinator
    assert without_seconds(up.folder("stilled") / "steps.jsonl") == without_seconds(trained.folder / "steps.jsonl")
