"""Executors that die, raise, stand still or compute nonsense, under ``takt up``, with max_restarts 0."""

import os
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from stage_worker.executor_run import PULSE_SECONDS
from tests.integration.services.job_files import PLAIN, write_job
from tests.integration.services.standing import Standing
from tests.integration.services.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

END_SECONDS = 120.0


def seconds_since(began: float, time_text: str) -> float:
    """Return the seconds from ``began`` (Unix) to a time of a status."""
    return datetime.fromisoformat(time_text).timestamp() - began


def failed(up: Standing, job: str) -> dict[str, Any]:
    """Wait for a job's failure; hold what is so of every failure; return the status."""
    finished = up.takt("wait", job, "--output", "json", limit_seconds=END_SECONDS)
    assert finished.code == 1, finished.err
    status = finished.document
    assert status["state"] == "FAILED"
    assert status["attempt"] == 1
    error = status["error"]
    assert status["reason"] == f"{error['message']}; see {error['log']}"
    assert (up.folder(job) / error["log"]).is_file()
    assert status["step"] == error["step"] - 1
    assert up.takt("status", job, "--output", "json").document == status
    return status


def test_h94_exception_in_a_stage_fails_the_job_and_names_its_place(up: Standing, tmp_path: Path) -> None:
    up.faults.ask("boom", "raise", stage=1, step=2)
    with up.begin("submit", write_job(tmp_path / "job.yaml"), "--id", "boom", "--wait") as submitting:
        submitted = submitting.end(limit_seconds=END_SECONDS)
    status = failed(up, "boom")
    assert seconds_since(up.faults.reached_at("boom"), status["ended"]) < 10
    error = status["error"]
    assert (error["worker"], error["stage"], error["step"]) == (1, 1, 2)
    assert (error["type"], error["log"]) == ("ValueError", "logs/worker-1.log")
    assert "boom" in error["message"]
    log = (up.folder("boom") / error["log"]).read_text()
    assert "ValueError: boom" in log
    assert "Traceback" in log
    assert (submitted.code, submitted.out) == (1, "boom\n")
    assert "boom" in submitted.err
    table = up.takt("status", "boom").out
    for told in ("FAILED", "stage 1", "step 2", "ValueError", "boom", "logs/worker-1.log"):
        assert told in table, told


@pytest.mark.parametrize(("dp", "worker"), [(1, 1), (2, 3)])
def test_h98_killed_executor_fails_the_job_and_a_new_one_runs(
    up: Standing, tmp_path: Path, dp: int, worker: int
) -> None:
    """Stage 1 of the last replica dies in step 3."""
    job = f"killed-{dp}"
    job_file = write_job(tmp_path / "job.yaml", {"parallel.dp": dp, "data.max_train_rows": 48})
    up.faults.ask(job, "hold", stage=1, step=3, dp_rank=dp - 1)
    up.submit(job_file, job)
    pid = up.faults.reached(job)
    assert up.status(job)["workers"][worker]["pid"] == pid
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    status = failed(up, job)
    assert seconds_since(killed, status["ended"]) < 15
    error = status["error"]
    assert (error["worker"], error["stage"], error["step"], error["type"]) == (worker, 1, 3, "signal")
    assert f"worker {worker} " in error["message"]
    assert "signal 9" in error["message"]
    up.assert_clean(job)
    if dp == 1:
        again = up.takt("submit", job_file, "--id", f"{job}-again", "--wait", limit_seconds=END_SECONDS)
        assert again.code == 0, again.err


def test_stopped_executor_fails_the_job_after_the_lease(up: Standing, tmp_path: Path) -> None:
    up.faults.ask("stopped", "hold", stage=0, step=2)
    up.submit(write_job(tmp_path / "job.yaml", {"limits.lease_seconds": 2}), "stopped")
    pid = up.faults.reached("stopped")
    stopped = time.time()
    os.kill(pid, signal.SIGSTOP)
    status = failed(up, "stopped")
    since_last_pulse = seconds_since(stopped, status["ended"]) + PULSE_SECONDS
    assert 2 < since_last_pulse < 12, "the lease runs from the last pulse, which was up to one interval earlier"
    error = status["error"]
    assert (error["worker"], error["stage"], error["step"], error["type"]) == (0, 0, 2, "silent")
    assert "no sign of life for 2 s" in error["message"]


def test_stage_that_hangs_is_blamed_and_its_waiting_peer_is_not(up: Standing, tmp_path: Path) -> None:
    up.faults.ask("hangs", "hold", stage=1, step=2)
    up.submit(write_job(tmp_path / "job.yaml", {"limits.step_timeout_seconds": 2}), "hangs")
    status = failed(up, "hangs")
    assert 1.5 < seconds_since(up.faults.reached_at("hangs"), status["ended"]) < 12, "2 s from the stage's start"
    error = status["error"]
    assert (error["worker"], error["stage"], error["step"], error["type"]) == (1, 1, 2, "stuck")
    assert "longer than 2 s" in error["message"]


def test_numbers_that_are_not_finite_fail_the_job(up: Standing, tmp_path: Path) -> None:
    changes = {"parallel.pp": 1, "model.config": dict(PLAIN), "train.optimizer": "sgd", "train.learning_rate": 1e30}
    job_file = write_job(tmp_path / "job.yaml", {**changes, "train.warmup_fraction": 0})
    submitted = up.takt("submit", job_file, "--id", "wild", "--wait", limit_seconds=END_SECONDS)
    assert submitted.code == 1
    error = failed(up, "wild")["error"]
    assert (error["step"], error["type"], error["stage"]) == (2, "NonFiniteError", 0)
    assert error["message"].startswith("the loss of microbatch 0 on stage 0 in step 2 is not finite")


def test_h115_probes_answer_while_an_executor_loads(up: Standing, tmp_path: Path) -> None:
    up.faults.ask("loads", "hold", place="load", stage=0, step=None)
    up.submit(write_job(tmp_path / "job.yaml", {"parallel.pp": 1, "train.epochs": 100_000}), "loads")
    up.faults.reached("loads")
    agent = up.agent_of("loads", worker=0)
    ready = up.probe(agent, "/readyz")
    assert (ready.status, "loading stage 0" in ready.text) == (503, True)
    alive = up.probe(agent, "/livez")
    assert alive.status == 200
    assert alive.seconds < 1
    up.faults.let_go("loads")
    wait_until("the slot is ready", lambda: up.probe(agent, "/readyz").status == 200, limit_seconds=20)
    assert "stage 0 of job loads" in up.probe(agent, "/readyz").text


def test_h115_probes_answer_while_a_stage_computes_and_after_its_failure(up: Standing, tmp_path: Path) -> None:
    """The computation holds the interpreter for five seconds, then somebody kills it."""
    up.faults.ask("busy", "spin", stage=0, step=2, seconds=5)
    up.submit(write_job(tmp_path / "job.yaml", {"parallel.pp": 1, "train.epochs": 100_000}), "busy")
    pid = up.faults.reached("busy")
    agent = up.agent_of("busy", worker=0)
    until = up.faults.reached_at("busy") + 5
    num_probes = 0
    while time.time() < until:
        for service in up.services:
            answer = up.probe(service, "/livez")
            assert (answer.status, answer.seconds < 1) == (200, True), f"{service}: {answer.seconds:.2f} s"
            num_probes += 1
        assert up.probe(agent, "/readyz").status == 200
        time.sleep(0.2)  # the rate of the probes, not a wait for anything
    assert num_probes > 20
    os.kill(pid, signal.SIGKILL)
    error = up.end_of("busy")["error"]
    assert (error["worker"], "signal 9" in error["message"]) == (0, True)
    ready = up.probe(agent, "/readyz")
    assert ready.status == 503
    assert "signal 9" in ready.text
    assert up.probe(agent, "/livez").status == 200
