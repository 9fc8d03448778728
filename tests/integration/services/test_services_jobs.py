"""Jobs side by side and in the queue, and the commands that look after them."""

import re
from pathlib import Path

import pytest

from tests.integration.services.job_files import NUM_PARAMETERS, save_tiny_bert, sst2_rows, write_job, write_sst2
from tests.integration.services.standing import Standing

pytestmark = pytest.mark.timeout(240)

END_SECONDS = 120.0
MIB = 2**20


def held_job(up: Standing, path: Path, job: str, **changes: object) -> None:
    """Submit a job on two stages that stands still in step 2."""
    up.faults.ask(job, "hold", stage=0, step=2)
    up.submit(write_job(path / f"{job}.yaml", changes), job)


def test_jobs_run_side_by_side_and_the_next_waits_for_its_slots(up: Standing, tmp_path: Path) -> None:
    held_job(up, tmp_path, "left")
    held_job(up, tmp_path, "right")
    executors = {up.faults.reached("left"), up.faults.reached("right")}
    assert len(executors) == 2
    for job in ("left", "right"):
        assert (up.status(job)["state"], up.status(job)["step"]) == ("RUNNING", 1)

    job_file = write_job(tmp_path / "third.yaml")
    up.submit(job_file, "third")
    waits = up.in_state("third", "QUEUED", limit_seconds=5)
    assert (waits["missing_slots"], waits["workers"]) == (2, [])
    assert "needs 2 slots, 0 of 4 are free" in waits["reason"]
    listed = up.takt("list", "--output", "json").document["jobs"]
    states = {job["id"]: job["state"] for job in listed}
    assert (states["left"], states["right"], states["third"]) == ("RUNNING", "RUNNING", "QUEUED")
    finished = up.takt("wait", "third", "--timeout", "0.5")
    assert (finished.code, "has not ended" in finished.err) == (5, True)

    assert up.takt("cancel", "third").code == 0
    cancelled = up.end_of("third", limit_seconds=5)
    assert (cancelled["state"], cancelled["started"], cancelled["missing_slots"]) == ("CANCELLED", None, 0)
    assert up.takt("wait", "third").code == 7
    again = up.takt("submit", job_file, "--id", "third")
    assert (again.code, again.out) == (0, "third\n")
    conflict = up.takt("submit", job_file, "--id", "third", "--set", "train.seed=7")
    assert (conflict.code, conflict.out) == (4, "")
    assert "third" in conflict.err

    up.faults.let_go("left")
    up.faults.let_go("right")
    left, right = up.end_of("left"), up.end_of("right")
    assert (left["state"], right["state"]) == ("SUCCEEDED", "SUCCEEDED")
    assert left["started"] < right["ended"]
    assert right["started"] < left["ended"]


def test_each_worker_holds_its_own_parameters_only(up: Standing, tmp_path: Path) -> None:
    """The tiny BERT of four layers has 10,498 parameters: 1,296 in embeddings, 2,224 a layer, 306 in the head."""
    model = save_tiny_bert(tmp_path / "bert")
    source = write_sst2(tmp_path / "glue", sst2_rows(33))
    write_sst2(source, sst2_rows(5), split="dev")
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "sst2", "source": str(source), "max_length": 32},
        "parallel.pp": 2,
    }
    held_job(up, tmp_path, "apart", **changes)
    up.faults.reached("apart")
    status = up.status("apart")
    workers = up.takt("workers", "--output", "json").document["workers"]
    up.faults.let_go("apart")
    assert up.end_of("apart")["state"] == "SUCCEEDED"

    expected = [1296 + 2 * 2224, 2 * 2224 + 306]
    assert sum(expected) == NUM_PARAMETERS
    assert [worker["parameters"] for worker in status["workers"]] == expected
    assert [(worker["worker"], worker["stages"], worker["dp_rank"]) for worker in status["workers"]] == [
        (stage, [stage], 0) for stage in (0, 1)
    ]
    for worker in status["workers"]:
        assert 50 * MIB < worker["peak_bytes"] < 2000 * MIB
        assert worker["last_progress"] is not None
    by_worker = {slot["worker"]: slot for slot in workers if slot["job"] == "apart"}
    assert [by_worker[worker]["parameters"] for worker in (0, 1)] == expected
    assert [by_worker[worker]["stages"] for worker in (0, 1)] == [[0], [1]]
    assert by_worker[0]["slot"] < by_worker[1]["slot"]
    others = [slot for slot in workers if slot["job"] is None]
    assert [(slot["state"], slot["stages"], slot["parameters"]) for slot in others] == [("free", [], None)] * 2


def test_cancel_ends_a_running_job_at_a_step_boundary(up: Standing, tmp_path: Path) -> None:
    up.submit(write_job(tmp_path / "long.yaml", {"parallel.pp": 1, "train.epochs": 100_000}), "long")
    up.in_state("long", "RUNNING", limit_seconds=END_SECONDS)
    with up.begin("submit", tmp_path / "long.yaml", "--id", "long", "--wait") as waiting:
        assert waiting.next_line() == "long"
        assert up.takt("cancel", "long").code == 0
        assert waiting.end(limit_seconds=15).code == 7
    status = up.status("long")
    assert status["state"] == "CANCELLED"
    assert [change["state"] for change in status["history"]] == [
        *("QUEUED", "STARTING", "RUNNING", "CANCELLING", "CANCELLED")
    ]
    steps = (up.folder("long") / "steps.jsonl").read_text().splitlines()
    assert len(steps) == status["step"]


def test_logs_follow_a_job_to_its_end(up: Standing, tmp_path: Path) -> None:
    held_job(up, tmp_path, "told")
    up.faults.reached("told")
    with up.begin("logs", "told", "--follow") as following:
        first = following.next_line()
        assert re.match(r"worker [01] \| ", first)
        up.faults.let_go("told")
        assert up.end_of("told")["state"] == "SUCCEEDED"
        followed = following.end(limit_seconds=15)
    assert followed.code == 0, followed.err
    lines = [first, *followed.out.splitlines()]
    for worker in (0, 1):
        own = [line for line in lines if line.startswith(f"worker {worker} | ")]
        written = (up.folder("told") / "logs" / f"worker-{worker}.log").read_text().splitlines()
        assert own == [f"worker {worker} | {line}" for line in written]
        assert "executor ends" in own[-1]

    of_stage = up.takt("logs", "told", "--stage", 1, "--tail", 2)
    assert of_stage.out.splitlines() == [line for line in lines if line.startswith("worker 1 | ")][-2:]
    tails = up.takt("logs", "told", "--tail", 1, "--output", "json").document["lines"]
    assert sorted(line["worker"] for line in tails) == [0, 1]


def test_unknown_job_exits_3(up: Standing) -> None:
    for command in ("status", "wait", "cancel", "logs"):
        finished = up.takt(command, "nobody")
        assert (finished.code, "nobody" in finished.err) == (3, True)
