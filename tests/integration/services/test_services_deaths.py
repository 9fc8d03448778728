"""Two slots under ``takt up``: jobs one after the other, and services that are killed under a job."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.services.endpoint import samples, total
from tests.integration.services.job_files import write_job
from tests.integration.services.programs import takt
from tests.integration.services.standing import Standing, lines_of, takt_up
from tests.integration.services.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

END_SECONDS = 120.0
BACK_SECONDS = 30.0
STALL_SECONDS = 5.0


@pytest.fixture(scope="module")
def _two_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with takt_up(tmp_path_factory.mktemp("deaths"), num_workers=2) as standing:
        yield standing


@pytest.fixture
def pair(_two_slots: Standing) -> Iterator[Standing]:
    """Return ``takt up --workers 2``; hold that each test leaves it as it was, with both slots free."""
    before = _two_slots.jobs()
    yield _two_slots
    _two_slots.end_all()
    _two_slots.assert_clean(*(_two_slots.jobs() - before))
    assert len(_two_slots.slots()) == 2


def held(pair: Standing, folder: Path, job: str, changes: dict[str, Any] | None = None) -> Path:
    """Bring a job on both slots to step 2, where it stands still; return its file."""
    pair.faults.ask(job, "hold", stage=1, step=2)
    job_file = write_job(folder / "job.yaml", changes)
    pair.submit(job_file, job)
    pair.faults.reached(job)
    return job_file


def kill(pair: Standing, service: str) -> None:
    """Kill a service."""
    os.kill(pair.pid_of(service), signal.SIGKILL)


def test_second_job_waits_for_the_end_of_the_first(pair: Standing, tmp_path: Path) -> None:
    held(pair, tmp_path, "one")
    pair.submit(write_job(tmp_path / "two.yaml", {"parallel.pp": 1}), "two")
    waits = pair.in_state("two", "QUEUED", limit_seconds=5)
    assert waits["missing_slots"] == 1
    pair.faults.let_go("one")
    one, two = pair.end_of("one"), pair.end_of("two")
    assert (one["state"], two["state"]) == ("SUCCEEDED", "SUCCEEDED")
    assert one["ended"] <= two["started"]


def test_job_that_no_machine_can_hold_says_how_many_slots_are_missing(pair: Standing, tmp_path: Path) -> None:
    pair.submit(write_job(tmp_path / "job.yaml", {"parallel.pp": 3}), "large")
    waits = pair.in_state("large", "QUEUED", limit_seconds=5)
    wait_until("its reason is told", lambda: pair.look_at("large")["missing_slots"] == 1, limit_seconds=5)
    assert "start 1 more stage workers" in pair.look_at("large")["reason"]
    assert waits["workers"] == []


def test_killed_agent_fails_its_job_and_comes_back(pair: Standing, tmp_path: Path) -> None:
    held(pair, tmp_path, "agentless")
    agent = pair.agent_of("agentless", worker=0)
    killed = pair.pid_of(agent)
    kill(pair, agent)
    finished = pair.takt("wait", "agentless", limit_seconds=END_SECONDS)
    assert finished.code == 1
    error = pair.status("agentless")["error"]
    assert (error["worker"], error["stage"], error["step"], error["type"]) == (0, 0, 2, "lost")
    assert "the agent of worker 0" in error["message"]

    def both_are_back() -> bool:
        slots = pair.slots()
        return [slot["state"] for slot in slots] == ["free", "free"] and killed not in {s["pid"] for s in slots}

    wait_until("the agent is back", both_are_back, limit_seconds=BACK_SECONDS)


def test_data_service_killed_mid_epoch_changes_no_bit_and_stalls_no_step_for_5_seconds(
    pair: Standing, tmp_path: Path
) -> None:
    """Of 24 steps, 3 an epoch, workers hold at most 8, so most of the rows come from the next life of the service."""
    job_file = held(pair, tmp_path, "rowless", {"train.epochs": 8})
    kill(pair, "data-service")
    pair.faults.let_go("rowless")
    pair.end_of("rowless")
    served = total(samples(pair.metrics_addresses["data-service"]), "takt_data_batches_total")
    pair.submit(job_file, "rowful")
    pair.end_of("rowful")
    killed, whole = (lines_of(pair.folder(job) / "steps.jsonl") for job in ("rowless", "rowful"))
    assert max(step.pop("seconds") for step in killed[2:]) < STALL_SECONDS  # without the one that stood still
    assert all(step.pop("seconds") < STALL_SECONDS for step in whole)
    assert len(whole) == 24
    assert [step | {"seconds": None} for step in killed] == [step | {"seconds": None} for step in whole]
    assert shards(pair, "rowless") == shards(pair, "rowful")
    assert served >= 2 * 2 * (24 - 2 - 8)  # of each step two microbatches to two workers


def shards(pair: Standing, job: str) -> dict[str, str]:
    """Return the digests of a job's weights and optimizer state after its last step, by file."""
    manifest = json.loads((pair.folder(job) / "checkpoints" / "step-24" / "manifest.json").read_text())
    return {shard["file"]: shard["sha256"] for shard in manifest["shards"]}


def test_killed_coordinator_costs_its_job_no_step_and_no_bit(pair: Standing, tmp_path: Path) -> None:
    """The workers stand in step 2, are let go while nobody leads them, and are found by the next coordinator."""
    job_file = write_job(tmp_path / "job.yaml", {"train.epochs": 8, "eval.at_end": True})
    pair.faults.ask("beatless", "hold", stage=1, step=2)
    with pair.begin("submit", job_file, "--id", "beatless", "--wait") as waiting:
        pair.faults.reached("beatless")
        pair.submit(write_job(tmp_path / "waits.yaml", {"parallel.pp": 1}), "waits")
        kill(pair, "coordinator")
        pair.faults.let_go("beatless")
        finished = waiting.end(limit_seconds=END_SECONDS)
    assert finished.code == 0, finished.err
    status = pair.status("beatless")
    assert [change["state"] for change in status["history"]] == ["QUEUED", "STARTING", "RUNNING", "SUCCEEDED"]
    assert status["attempt"] == 1
    # What was queued is still there, and runs.
    assert pair.end_of("waits", limit_seconds=END_SECONDS)["state"] == "SUCCEEDED"
    pair.submit(job_file, "beaten")
    pair.end_of("beaten")
    led, calm = (lines_of(pair.folder(job) / "steps.jsonl") for job in ("beatless", "beaten"))
    assert [step | {"seconds": None} for step in led] == [step | {"seconds": None} for step in calm]
    assert shards(pair, "beatless") == shards(pair, "beaten")
    evaluations = [lines_of(pair.folder(job) / "eval.jsonl") for job in ("beatless", "beaten")]
    assert evaluations[0] == evaluations[1]


@pytest.mark.parametrize("service", ["coordinator", "agent"])
def test_sigterm_saves_at_the_next_step_and_the_job_goes_on(pair: Standing, tmp_path: Path, service: str) -> None:
    job, changes = f"{service}-stopped", {"train.epochs": 8}
    job_file = held(pair, tmp_path, job, changes)
    os.kill(pair.pid_of("coordinator" if service == "coordinator" else pair.agent_of(job, worker=0)), signal.SIGTERM)
    pair.faults.let_go(job)
    status = pair.end_of(job)
    assert (status["state"], status["attempt"]) == ("SUCCEEDED", 2), status["reason"]
    saved = next(change for change in status["history"] if change["state"] == "RECOVERING")
    again = [change for change in status["history"] if change["state"] == "STARTING"][-1]
    assert f"to go on after step {saved['step']}" in again["reason"]
    pair.submit(job_file, f"{service}-calm")
    pair.end_of(f"{service}-calm")
    stopped, calm = (lines_of(pair.folder(each) / "steps.jsonl") for each in (job, f"{service}-calm"))
    assert [step | {"seconds": None} for step in stopped] == [step | {"seconds": None} for step in calm]
    assert shards(pair, job) == shards(pair, f"{service}-calm")


def test_ctrl_c_of_up_ends_a_job_that_stands_still(tmp_path: Path) -> None:
    """That everything is gone, and ports are free, is held by ``takt_up`` itself."""
    with takt_up(tmp_path, num_workers=1, stop_seconds=35) as standing:
        standing.faults.ask("interrupted", "hold", stage=0, step=2)
        standing.submit(write_job(tmp_path / "job.yaml", {"parallel.pp": 1}), "interrupted")
        standing.faults.reached("interrupted")
    status = takt("status", "interrupted", "--state-dir", standing.state_dir, "--output", "json").document
    assert (status["state"], status["step"]) == ("RECOVERING", 1)
    assert "the coordinator was stopped" in status["reason"]
