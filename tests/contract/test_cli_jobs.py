"""The commands that ask a coordinator, against a JobService of the test's own on port 0."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_jobs import Jobs
from takt.v1 import jobs_pb2 as pb
from takt.v1 import jobs_pb2_grpc as pb_grpc

from coordinator.cli import source
from coordinator.cli.app import main
from coordinator.store import Store

NOBODY = "127.0.0.1:9"
JOB_FILE = """\
name: demo
model:
  config: {model_type: bert, num_hidden_layers: 2, hidden_size: 16, num_attention_heads: 2, intermediate_size: 32}
data: {task: demo}
"""


@dataclass
class Cli:
    """Runs commands against the service; keeps what they print."""

    jobs: Jobs
    address: str
    capsys: pytest.CaptureFixture[str]
    out: str = field(default="", init=False)
    err: str = field(default="", init=False)

    def __call__(self, *argv: str) -> int:
        code = main([*argv, "--coordinator", self.address])
        self.out, self.err = self.capsys.readouterr()
        return code

    def document(self) -> dict[str, Any]:
        """Return stdout, which must be one JSON document of the schema."""
        document: dict[str, Any] = json.loads(self.out)
        assert document["schema"] == "takt/v1"
        return document


@pytest.fixture
def takt(capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    jobs = Jobs()
    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_JobServiceServicer_to_server(jobs, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield Cli(jobs, f"127.0.0.1:{port}", capsys)
    server.stop(grace=None).wait()


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB_FILE)
    return str(path)


def test_submit_prints_only_the_id_and_sends_the_whole_resolved_spec(takt: Cli, job_file: str) -> None:
    assert takt("submit", job_file, "--set", "train.max_steps=7") == 0
    assert takt.out == "demo-1\n"
    spec = json.loads(takt.jobs.specs["demo-1"])
    assert spec["train"]["max_steps"] == 7
    assert spec["schedule"]["num_microbatches"] == 8


@pytest.mark.parametrize(("options", "priority"), [((), 0), (("--priority", "-3"), -3)])
def test_submit_sends_the_priority(takt: Cli, job_file: str, options: tuple[str, ...], priority: int) -> None:
    assert takt("submit", job_file, *options) == 0
    assert takt.jobs.priorities == {"demo-1": priority}


def test_submit_of_a_priority_past_its_range_exits_2(takt: Cli, job_file: str) -> None:
    assert takt("submit", job_file, "--priority", "3000000000") == 2
    assert takt.jobs.specs == {}


def custom_job(job_file: str, plan: str) -> str:
    """Give a job a plan of its own, beside it; return the job's file."""
    path = Path(job_file)
    path.with_name("plan.csv").write_text(plan)
    path.write_text(JOB_FILE + "schedule: {name: custom, num_microbatches: 2, file: plan.csv}\n")
    return job_file


def test_submit_sends_the_text_of_a_custom_plan(takt: Cli, job_file: str) -> None:
    plan = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert takt("submit", custom_job(job_file, plan)) == 0
    assert json.loads(takt.jobs.specs["demo-1"])["schedule"]["file"] == plan
    assert takt.err == ""


def test_submit_of_a_custom_plan_that_breaks_a_rule_shows_the_place_and_sends_nothing(takt: Cli, job_file: str) -> None:
    assert takt("submit", custom_job(job_file, "0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n")) == 2
    first, *figure = takt.err.splitlines()
    assert first.startswith("error: schedule.file: the plan breaks the rule: ")
    assert ["[1B0]" in line for line in figure if "<--" in line] == [True]
    assert (takt.out, takt.jobs.specs) == ("", {})


def test_submit_of_a_custom_plan_that_does_not_ascend_says_so_once_on_stderr(takt: Cli, job_file: str) -> None:
    assert takt("submit", custom_job(job_file, "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n")) == 0
    assert takt.out == "demo-1\n"
    assert [line.split(": ")[0] for line in takt.err.splitlines()] == ["notice"] * takt.err.count("\n")
    assert 0 < takt.err.count("\n") <= 2


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("{name: zbv}", "schedule.num_chunks: is 1, but zbv needs 2"),
        (
            "{name: dualpipev, num_chunks: 2, num_microbatches: 3}",
            "schedule.num_microbatches: is 3, but dualpipev on 2",
        ),
        ("{name: custom, file: no.csv}", "no.csv: there is no such plan file"),
        ("{name: pipedream}", 'schedule.name: is "pipedream", which this version has not built'),
    ],
)
def test_submit_of_a_schedule_that_does_not_fit_exits_2_and_sends_nothing(
    takt: Cli, job_file: str, schedule: str, said: str
) -> None:
    Path(job_file).write_text(f"{JOB_FILE}schedule: {schedule}\n")
    assert takt("submit", job_file) == 2
    assert said in takt.err
    assert (takt.out, takt.jobs.specs) == ("", {})


def test_submit_twice_with_one_id_and_an_equal_job_answers_the_same_job(takt: Cli, job_file: str) -> None:
    assert takt("submit", job_file, "--id", "mine") == 0
    assert takt("submit", job_file, "--id", "mine") == 0
    assert takt.out == "mine\n"


def test_submit_with_a_taken_id_and_another_job_is_a_conflict(takt: Cli, job_file: str) -> None:
    assert takt("submit", job_file, "--id", "mine") == 0
    assert takt("submit", job_file, "--id", "mine", "--set", "train.seed=1") == 4
    assert takt.out == ""
    assert takt.err == "error: job mine exists with another spec; choose another --id\n"


@pytest.mark.parametrize(
    ("state", "code"), [(pb.JOB_STATE_SUCCEEDED, 0), (pb.JOB_STATE_FAILED, 1), (pb.JOB_STATE_CANCELLED, 7)]
)
@pytest.mark.parametrize("option", ["--wait", "--follow"])
def test_submit_and_wait_exits_with_the_jobs_code_and_prints_only_the_id(
    takt: Cli, job_file: str, option: str, state: pb.JobState, code: int
) -> None:
    takt.jobs.end_state = state
    assert takt("submit", job_file, option) == code
    assert takt.out == "demo-1\n"
    assert ("worker 1 | second [bold]" in takt.err) is (option == "--follow")


def test_submit_of_a_wrong_job_exits_2_and_asks_nobody(takt: Cli, job_file: str) -> None:
    assert takt("submit", job_file, "--set", "train.lerning_rate=1") == 2
    assert "train.learning_rate" in takt.err
    assert takt.jobs.specs == {}


def test_status_of_an_unknown_job_exits_3(takt: Cli) -> None:
    assert takt("status", "nobody") == 3
    assert (takt.out, takt.err) == ("", "error: there is no job nobody\n")


def test_status_as_json_is_one_document(takt: Cli) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j", state=pb.JOB_STATE_RUNNING, step=3, loss=0.25)
    assert takt("status", "j", "--output", "json") == 0
    document = takt.document()
    assert (document["id"], document["state"], document["step"], document["loss"]) == ("j", "RUNNING", 3, 0.25)


def test_status_as_json_tells_a_workers_time_by_stage(takt: Cli) -> None:
    v = pb.JobWorker(worker=1, stages=[1, 2], busy_seconds=9, idle_seconds=1, stage_busy_seconds=[4, 5])
    takt.jobs.jobs["j"] = pb.Job(id="j", workers=[v])
    assert takt("status", "j", "--output", "json") == 0
    (worker,) = takt.document()["workers"]
    assert (worker["stages"], worker["busy_seconds"], worker["stage_busy_seconds"]) == ([1, 2], 9, [4, 5])


def test_status_for_people_shows_worker_parameters_and_error(takt: Cli) -> None:
    takt.jobs.jobs["j"] = pb.Job(
        id="j",
        state=pb.JOB_STATE_FAILED,
        workers=[pb.JobWorker(worker=1, stages=[1], host="h", state="ended", parameters=1234567)],
        error=pb.JobError(worker=1, stage=1, step=2, type="ValueError", message="boom [x]", log="logs/worker-1.log"),
    )
    takt.jobs.looks_left = -1
    assert takt("status", "j") == 0
    assert "1,234,567" in takt.out
    assert "error on worker 1, stage 1, step 2: ValueError: boom [x] (log: logs/worker-1.log)" in takt.out
    assert "\x1b" not in takt.out


def test_list_as_json_keeps_the_coordinators_order(takt: Cli) -> None:
    takt.jobs.jobs = {name: pb.Job(id=name, state=pb.JOB_STATE_QUEUED) for name in ("new", "old")}
    assert takt("list", "--output", "json") == 0
    assert [job["id"] for job in takt.document()["jobs"]] == ["new", "old"]


def test_list_without_a_job_says_so(takt: Cli) -> None:
    assert takt("list") == 0
    assert takt.out == "no jobs\n"
    assert takt("list", "--output", "json") == 0
    assert takt.document()["jobs"] == []


def test_workers_as_json_shows_stages_and_parameters(takt: Cli) -> None:
    takt.jobs.slots = [pb.Slot(host="h", slot=0, state="busy", job="j", worker=0, stages=[0], parameters=42)]
    assert takt("workers", "--output", "json") == 0
    (slot,) = takt.document()["workers"]
    assert (slot["job"], slot["worker"], slot["stages"], slot["parameters"]) == ("j", 0, [0], 42)


def test_wait_exits_with_the_jobs_code_and_outlives_a_short_absence(takt: Cli) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j", state=pb.JOB_STATE_RUNNING)
    takt.jobs.end_state = pb.JOB_STATE_CANCELLED
    takt.jobs.looks_left = 2
    assert takt("wait", "j", "--output", "json") == 7
    assert takt.document()["state"] == "CANCELLED"


def test_wait_past_its_time_limit_exits_5(takt: Cli) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j", state=pb.JOB_STATE_RUNNING)
    takt.jobs.looks_left = -1
    assert takt("wait", "j", "--timeout", "0.01") == 5
    assert "has not ended" in takt.err


def test_cancel_exits_0_once_the_request_is_taken_down(takt: Cli) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j", state=pb.JOB_STATE_RUNNING, step=4)
    assert takt("cancel", "j") == 0
    assert takt.out == "job j CANCELLING at step 4: asked to end\n"


def test_logs_passes_its_choices_on_and_prints_lines_as_they_are(takt: Cli) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j")
    assert takt("logs", "j", "--stage", "0", "--tail", "5", "--follow") == 0
    assert takt.out == "worker 0 | first\nworker 1 | second [bold]\n"
    (request,) = takt.jobs.log_requests
    assert (request.stage, request.tail, request.follow) == (0, 5, True)


def test_logs_without_choices_asks_for_everything(takt: Cli) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j")
    assert takt("logs", "j") == 0
    (request,) = takt.jobs.log_requests
    assert not request.HasField("stage")
    assert not request.HasField("tail")


@pytest.mark.parametrize(
    ("status", "code"), [("UNAUTHENTICATED", 6), ("INVALID_ARGUMENT", 2), ("INTERNAL", 5), ("UNKNOWN", 5)]
)
def test_a_call_that_is_refused_exits_with_the_tables_code(takt: Cli, status: str, code: int) -> None:
    takt.jobs.failing["ListJobs"] = grpc.StatusCode[status]
    assert takt("list") == code
    assert takt.err == "error: ListJobs is made to fail\n"


def test_every_unary_call_has_a_deadline(takt: Cli, job_file: str) -> None:
    takt("submit", job_file)
    for argv in (["status", "demo-1"], ["list"], ["cancel", "demo-1"], ["workers"]):
        assert takt(*argv) == 0
    assert set(takt.jobs.deadlines) == {"SubmitJob", "GetJob", "ListJobs", "CancelJob", "ListWorkers"}
    assert all(seconds is not None and seconds < 1000 for seconds in takt.jobs.deadlines.values())


def test_calls_ignore_proxies_in_the_environment(takt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert takt("list") == 0


def test_a_coordinator_that_is_named_and_absent_exits_5_and_names_the_address(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["status", "j", "--coordinator", NOBODY, "--state-dir", str(tmp_path)]) == 5
    assert f"no coordinator answers at {NOBODY}" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["", "localhost", "host:", "host:0", "host:99999", "host:http", ":7700"])
def test_a_malformed_address_exits_2_and_says_what_is_needed(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--coordinator", address]) == 2
    assert "need HOST:PORT" in capsys.readouterr().err


def test_a_coordinator_named_by_the_environment_counts_as_named(
    takt: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j")
    monkeypatch.setenv("TAKT_COORDINATOR", takt.address)
    assert main(["list", "--output", "json"]) == 0
    assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["j"]


def test_without_a_named_coordinator_the_local_one_is_asked(
    takt: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j")
    monkeypatch.setattr(source, "DEFAULT_COORDINATOR", takt.address)
    assert main(["list", "--state-dir", str(tmp_path), "--output", "json"]) == 0
    assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["j"]


def test_a_named_folder_with_jobs_is_answered_for_by_its_own_coordinator_only(
    takt: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    takt.jobs.jobs["j"] = pb.Job(id="j")
    Store.open(tmp_path, owner="me").close()
    monkeypatch.setattr(source, "DEFAULT_COORDINATOR", takt.address)
    list_of_folder = ["list", "--state-dir", str(tmp_path), "--output", "json"]
    assert main(list_of_folder) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == []

    monkeypatch.setattr(source, "DEFAULT_COORDINATOR", "127.0.0.1:9")
    store = Store.open(tmp_path, owner="me")
    store.take_lease(seen=None, now=0.0)
    store.beat(takt.address, now=0.0)
    assert main(list_of_folder) == 0
    assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["j"]
