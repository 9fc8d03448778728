"""takt trace and takt explain on a folder that a job left."""

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.cli.app import main
from coordinator.cli.commands import explain
from coordinator.cli.exits import ExitCode
from coordinator.problem import Problem, SpecError
from coordinator.schedule.plan import make_plan
from coordinator.schedule.text import to_csv
from coordinator.spec import parse_spec, to_json
from coordinator.trace.chrome import to_chrome
from tests.unit.test_trace_measured import GAP, trace_of

JOB = {
    "name": "job",
    "model": {"config": {"model_type": "bert", "num_hidden_layers": 2}},
    "data": {"task": "demo"},
    "parallel": {"pp": 2},
    "schedule": {"name": "gpipe", "num_microbatches": 2},
    "train": {"global_batch_size": 8},
}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state" / "jobs" / "job"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(to_json(parse_spec(JOB)))
    (folder / "plan.csv").write_text(to_csv(make_plan("gpipe", num_workers=2, num_microbatches=2).workers))
    (folder / "trace.json").write_text("".join(to_chrome(trace_of(6), None)))
    return tmp_path / "state"


def run(*arguments: object) -> int:
    return main([str(each) for each in arguments])


def test_trace_has_a_process_for_what_each_worker_did_and_one_for_its_plan(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert run("trace", "job", "--state-dir", state, "--out", out) == ExitCode.SUCCESS
    events = json.loads(out.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert len(names) == 4
    forwards = {event["pid"] for event in events if event["ph"] == "X" and event["name"] == "0F0"}
    assert len(forwards) == 2, "stage 0 is on one worker, measured and planned"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["job", "--out", "x.txt"], ExitCode.INVALID, "--out x.txt has to end in .json or .svg"),
        (["job", "--out", "x.svg", "--step", "99"], ExitCode.NOT_FOUND, "step 99: not measured"),
        (["job", "--out", "x.json", "--step", "2"], ExitCode.INVALID, "--step is for a picture"),
        (["other", "--out", "x.json"], ExitCode.NOT_FOUND, "there is no job other"),
        (["job", "--out", "no/such/x.json"], ExitCode.INVALID, "--out no/such/x.json cannot be written: No such file"),
    ],
)
def test_trace_says_what_is_wrong(
    state: Path,
    arguments: list[str],
    code: ExitCode,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(state)
    assert run("trace", *arguments, "--state-dir", state) == code
    assert message in capsys.readouterr().err
    assert not list(state.glob("x.*")), "nothing is left of what could not be done"


@pytest.mark.parametrize("command", [["trace", "job", "--out", "x.json"], ["explain", "job"]])
def test_job_without_a_timeline_and_one_that_is_damaged_are_told(
    state: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = state / "jobs" / "job" / "trace.json"
    path.write_text(path.read_text()[:5000])
    assert run(*command, "--state-dir", state) == ExitCode.INVALID
    assert "trace.json" in capsys.readouterr().err
    path.unlink()
    assert run(*command, "--state-dir", state) == ExitCode.NOT_FOUND
    assert "job job has no timeline; one is written" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["trace", "job", "--out", "x.json"], ["explain", "job"]])
@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("trace.json", b"\xff\xfe", ExitCode.INVALID, "trace.json is not UTF-8 text"),
        ("plan.csv", b"\xff\xfe", ExitCode.INVALID, "plan.csv is not UTF-8 text"),
        ("plan.csv", b"hello", ExitCode.INVALID, "plan.csv is no plan: line 1, cell 1: 'hello'"),
        ("plan.csv", b"0F0,0B0\n", ExitCode.INVALID, "plan.csv has other stages than"),
        ("plan.csv", None, ExitCode.NOT_FOUND, "job job has no"),
    ],
)
def test_a_file_of_the_job_that_is_gone_or_damaged_is_named(
    state: Path,
    command: list[str],
    name: str,
    content: bytes | None,
    code: ExitCode,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = state / "jobs" / "job" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert run(*command, "--state-dir", state) == code
    told = capsys.readouterr().err
    assert message in told
    assert name in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [(b"\xff", ExitCode.INVALID, "not UTF-8 text"), (None, ExitCode.NOT_FOUND, "job job has no")],
)
def test_explain_names_the_spec_that_is_gone_or_damaged(
    state: Path, content: bytes | None, code: ExitCode, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = state / "jobs" / "job" / "spec.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert run("explain", "job", "--state-dir", state) == code
    told = capsys.readouterr().err
    assert message in told
    assert "spec.json" in told


@pytest.mark.parametrize("suffix", ["json", "svg"])
def test_trace_of_a_job_that_did_no_step_writes_nothing(
    state: Path, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = state / "jobs" / "job" / "trace.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"traceEvents": []}))
    out = tmp_path / f"x.{suffix}"
    assert run("trace", "job", "--state-dir", state, "--out", out) == ExitCode.NOT_FOUND
    assert "holds no step" in capsys.readouterr().err
    assert not out.exists()


def explained(state: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run("explain", "job", "--state-dir", state, "--output", "json") == ExitCode.SUCCESS
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_explained_shares_are_those_of_the_trace(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise SpecError([Problem("model.pretrained", "there is no folder /gone")])

    monkeypatch.setattr(explain, "local_facts", gone)
    document = explained(state, capsys)
    first, last = document["workers"]
    # Two microbatches of 2 s forward and 4 s backward, and an update of 1 s; see test_trace_measured.
    assert first["busy_seconds"] == pytest.approx({"F": 4.0, "B": 8.0, "update": 1.0})
    assert last["busy_seconds"] == pytest.approx({"F": 6.0, "B": 10.0, "update": 1.0})
    assert last["idle_seconds"]["gradient"] == 0.0
    assert first["idle_seconds"]["gradient"] > 0.0
    for worker in (first, last):
        whole = sum(worker["busy_seconds"].values()) + sum(worker["idle_seconds"].values())
        assert worker["busy_fraction"] == pytest.approx(sum(worker["busy_seconds"].values()) / whole)
    assert first["idle_seconds"]["other"] == pytest.approx(4 * GAP)
    assert document["changes"] == []
    assert "there is no folder /gone" in document["reason"]
