"""`takt validate`, and what it has in common with `run`: every check before anything is started."""

import json
from pathlib import Path

import pytest

from coordinator.cli import preflight
from coordinator.cli.app import main
from tests.unit.cli_facts import facts

JOB = "name: a\nmodel: {config: {model_type: bert}}\ndata: {task: demo}\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a good job file, alone in the current folder, about whose model and data nobody is asked."""
    monkeypatch.setattr(preflight, "local_facts", facts)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def custom(job: Path, plan: str) -> None:
    job.with_name("plan.csv").write_text(plan)
    job.write_text(f"{JOB}schedule: {{name: custom, num_microbatches: 2, file: plan.csv}}\n")


def test_validate_in_a_v_tells_the_worker_of_each_stage(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(f"{JOB}schedule: {{name: zbv, num_chunks: 2}}\n")
    assert main(["validate", "job.yaml", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["valid"], document["schedule"], document["num_chunks"]) == (True, "zbv", 2)
    layers = [(part["stage"], part["pp_rank"], part["first_layer"], part["num_layers"]) for part in document["stages"]]
    assert layers == [(0, 0, 0, 2), (1, 1, 2, 2), (2, 1, 4, 1), (3, 0, 5, 1)]
    assert main(["validate", "job.yaml"]) == 0
    assert "schedule  zbv, 2 workers x 2 chunks, 8 microbatches\n" in capsys.readouterr().out


def test_validate_of_a_plan_that_does_not_ascend_says_so_on_stderr(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    custom(job, "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n")
    assert main(["validate", "job.yaml", "--output", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["valid"]
    assert [line[:8] for line in captured.err.splitlines()] == ["notice: "] * 2  # one a stage


def test_validate_of_a_plan_that_breaks_a_rule_shows_the_place_in_both_outputs(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(preflight, "local_facts")  # the seconds that they take are not spent first
    custom(job, "0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n")
    assert main(["validate", "job.yaml", "--output", "json"]) == 2
    captured = capsys.readouterr()
    (problem,) = json.loads(captured.out)["problems"]
    assert problem["key"] == "schedule.file"
    told = captured.err.removeprefix("error: schedule.file: ").rstrip("\n")
    assert problem["message"] == told
    assert ["[1B0]" in line for line in told.splitlines() if "<--" in line] == [True]


@pytest.mark.parametrize("command", ["validate", "run", "plan"])
@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("{name: zbv}", "schedule.num_chunks: is 1, but zbv needs 2"),
        ("{name: interleaved, num_chunks: 2, num_microbatches: 3}", "so the last group of 2 has 1, "),
        ("{name: dualpipev, num_chunks: 2, num_microbatches: 3}", "is 3, but dualpipev on 2 workers needs at least 4"),
        ("{name: looped_bfs, num_chunks: 4}", "makes 8 stages on 2 workers, but the model has 6 layers"),
        ("{warmup: [1, 0, 0]}", "schedule.warmup: has 3 numbers for 2 workers"),
        ("{name: custom, num_chunks: 2, file: plan.csv, num_microbatches: 2}", "schedule.num_chunks: is 2, but the"),
        ("{name: custom, file: plan.csv}", "schedule.num_microbatches: is 8 for the whole step, but the plan has 2"),
        ("{name: custom, file: plans/plan.csv}", "plan.csv: there is no such plan file"),
    ],
)
def test_job_that_its_schedule_does_not_fit_exits_2_before_anything_starts(
    command: str, schedule: str, said: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    custom(job, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    job.write_text(f"{JOB}schedule: {schedule}\n")
    assert main([command, "job.yaml"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert sorted(path.name for path in job.parent.iterdir()) == ["job.yaml", "plan.csv"]


def test_validate_tells_the_head_that_the_objective_asks_for(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "job.yaml"]) == 0
    assert "model     bert, 6 layers, 2 outputs\n" in capsys.readouterr().out
    assert main(["validate", "job.yaml", "--set", "train.objective=causal_lm"]) == 0
    assert "model     bert, 6 layers, causal_lm head\n" in capsys.readouterr().out
