"""``takt run`` at a terminal: Ctrl-C, exit codes, refusals, two at once, a hostile environment."""

import time
from pathlib import Path

import pytest

from tests.integration.services.faults import Faults
from tests.integration.services.job_files import save_tiny_bert, sst2_rows, write_job, write_sst2
from tests.integration.services.programs import Finished, Program, start_takt, takt
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

END_SECONDS = 120.0
NO_NETWORK = {
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "no_proxy": "",
    "NO_PROXY": "",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny BERT with 32 positions."""
    return save_tiny_bert(tmp_path_factory.mktemp("model") / "bert")


def sst2_job(path: Path, model: Path, source: Path, **data: object) -> Path:
    """Write a job of the task sst2."""
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "sst2", "source": str(source), "max_length": 32, "record_rows": True, **data},
    }
    return write_job(path, changes)


def in_state(state_dir: Path, job: str, state: str) -> None:
    """Wait until the state folder says that a job is in a state."""

    def look() -> bool:
        finished = takt("status", job, "--state-dir", state_dir, "--output", "json")
        return finished.code == 0 and finished.document["state"] == state

    wait_until(f"job {job} is {state}", look, limit_seconds=END_SECONDS)


def assert_told(finished: Finished, code: int, *texts: str) -> None:
    """Hold that a command ended with a code and one message that has all ``texts``."""
    assert finished.code == code, finished.err
    errors = [line for line in finished.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, finished.err
    assert "Traceback" not in finished.err
    for text in texts:
        assert text in errors[0]


@pytest.mark.parametrize(("whole_group", "held"), [(False, True), (True, False)], ids=["alone-held", "group-running"])
def test_ctrl_c_ends_everything_within_10_seconds(tmp_path: Path, whole_group: bool, held: bool) -> None:
    """A job that reaches step boundaries ends at one; one that stands still is killed."""
    faults, state_dir = Faults(tmp_path / "faults"), tmp_path / "state"
    if held:
        faults.ask("stopped", "hold", stage=1, step=2)
    # A peer that waits is part of the first case only.
    job_file = write_job(tmp_path / "job.yaml", {"parallel.pp": 2 if held else 1, "train.epochs": 100_000})
    options = ("--id", "stopped", "--state-dir", state_dir)
    with start_takt("run", job_file, *options, env=faults.environment) as run:
        if held:
            faults.reached("stopped")
        else:
            in_state(state_dir, "stopped", "RUNNING")
        pressed = time.monotonic()
        run.interrupt(whole_group=whole_group)
        finished = run.end(limit_seconds=10)
        assert time.monotonic() - pressed < 10
    assert finished.code == 7, finished.err
    status = takt("status", "stopped", "--state-dir", state_dir, "--output", "json").document
    assert status["state"] == "CANCELLED"
    assert len(lines_of(state_dir / "jobs/stopped/steps.jsonl")) == status["step"]
    assert takt("wait", "stopped", "--state-dir", state_dir).code == 7


def test_h113_run_whose_worker_raises_exits_1_and_says_why(tmp_path: Path) -> None:
    faults, state_dir = Faults(tmp_path / "faults"), tmp_path / "state"
    faults.ask("boom", "raise", stage=0, step=1)
    options = ("--id", "boom", "--state-dir", state_dir)
    job_file = write_job(tmp_path / "job.yaml", {"parallel.pp": 1})
    finished = takt("run", job_file, *options, env=faults.environment, limit_seconds=END_SECONDS)
    assert finished.code == 1
    for told in ("FAILED", "ValueError", "boom", "stage 0", "logs/worker-0.log"):
        assert told in finished.out, told
    assert takt("status", "boom", "--state-dir", state_dir, "--output", "json").document["state"] == "FAILED"
    assert takt("wait", "boom", "--state-dir", state_dir).code == 1


def test_h102_two_runs_at_once_in_one_folder_succeed_without_a_network(tmp_path: Path, model: Path) -> None:
    """Also H86 (a proxy that answers nobody), H13 (a) (offline, GLUE files in a folder) and H07 (a) (a long text)."""
    rows = [("w01 " * 100, 1), *sst2_rows(32)]
    source = write_sst2(tmp_path / "glue", rows)
    write_sst2(source, sst2_rows(5), split="dev")
    state_dir = tmp_path / "state"
    job_files = {
        "offline": sst2_job(tmp_path / "offline.yaml", model, source),
        "demo": write_job(tmp_path / "demo.yaml", {"parallel.pp": 1}),
    }
    runs: dict[str, Program] = {}
    try:
        for job, job_file in job_files.items():
            runs[job] = start_takt("run", job_file, "--id", job, "--state-dir", state_dir, env=NO_NETWORK)
        for job, run in runs.items():
            finished = run.end(limit_seconds=END_SECONDS)
            assert finished.code == 0, f"{job}: {finished.err}"
    finally:
        for run in runs.values():
            run.close()
    listed = takt("list", "--state-dir", state_dir, "--output", "json").document["jobs"]
    assert {job["id"]: job["state"] for job in listed} == {"offline": "SUCCEEDED", "demo": "SUCCEEDED"}
    for job in job_files:
        assert [step["examples"] for step in lines_of(state_dir / "jobs" / job / "steps.jsonl")] == [16, 16, 1]
    # The long text is cut to 32 ids; every other row has its words, [CLS] and [SEP].
    tokens = sum(step["tokens"] for step in lines_of(state_dir / "jobs/offline/steps.jsonl"))
    assert tokens == 32 + sum(len(text.split()) + 2 for text, _ in rows[1:])


def test_h13_missing_folder_is_refused_naming_task_and_folder(up: Standing, tmp_path: Path, model: Path) -> None:
    missing = tmp_path / "nowhere"
    job_file = sst2_job(tmp_path / "job.yaml", model, missing)
    ran = takt("run", job_file, "--state-dir", tmp_path / "state", env=NO_NETWORK, limit_seconds=30)
    assert_told(ran, 2, "sst2", str(missing))
    assert not (tmp_path / "state").exists()
    jobs = up.jobs()
    assert_told(up.takt("submit", job_file, "--id", "sourceless", limit_seconds=30), 2, "sst2", str(missing))
    assert up.jobs() == jobs


def test_h07_more_tokens_than_the_model_has_positions_are_refused(up: Standing, tmp_path: Path, model: Path) -> None:
    source = write_sst2(tmp_path / "glue", sst2_rows(33))
    job_file = sst2_job(tmp_path / "job.yaml", model, source, max_length=64)
    assert_told(takt("run", job_file, "--state-dir", tmp_path / "state"), 2, "64", "32", "max_length")
    assert not (tmp_path / "state").exists()
    jobs = up.jobs()
    assert_told(up.takt("submit", job_file, "--id", "long-rows"), 2, "64", "32", "max_length")
    assert up.jobs() == jobs


def test_h113_model_that_cannot_be_built_is_refused(up: Standing, tmp_path: Path) -> None:
    job_file = write_job(tmp_path / "job.yaml", {"model": {"pretrained": str(tmp_path / "no-model")}})
    assert_told(takt("run", job_file, "--state-dir", tmp_path / "state"), 2, str(tmp_path / "no-model"))
    assert not (tmp_path / "state").exists()
    jobs = up.jobs()
    waited = up.takt("submit", job_file, "--id", "modelless", "--wait")
    assert_told(waited, 2, str(tmp_path / "no-model"))
    assert up.jobs() == jobs
