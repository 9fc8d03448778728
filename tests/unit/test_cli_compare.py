"""`takt plan` with `--compare`, `--costs` and `schedule.name: auto`: what is printed, and that it can be acted on."""

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator import choice
from coordinator.cli import preflight
from coordinator.cli.app import main
from tests.unit.cli_facts import facts
from tests.unit.job_costs import part, write_costs


@pytest.fixture(autouse=True)
def _facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)


def job_file(folder: Path, *, schedule: str = "gpipe", **parallel: object) -> str:
    """Write a job of six layers on three workers: 8 microbatches of 4 rows."""
    path = folder / "job.yaml"
    path.write_text(
        f"name: a\nmodel: {{config: {{model_type: bert}}}}\ndata: {{task: demo}}\n"
        f"parallel: {json.dumps({'pp': 3, **parallel})}\nschedule: {{name: {schedule}}}\n"
    )
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main([*options, "--output", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["schema"] == "takt/v1"
    return document


def test_compare_of_sizes_ranks_the_published_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(capsys, "plan", "--compare", "--stages", "4", "--microbatches", "8", "--chunks", "2")
    lengths = {each["schedule"]: each["step"] for each in document["candidates"]}
    assert lengths == {
        "zbv": 25.5, "dualpipev": 25.5, "zbh1": 27, "zbh2": 27, "interleaved": 28.5, "looped_bfs": 28.5,
        "1f1b": 33, "gpipe": 33, "naive": 96,
    }  # fmt: skip
    assert [each["rank"] for each in document["candidates"]] == list(range(1, 10))
    assert document["basis"] == "units"
    (own,) = [each for each in document["candidates"] if each["is_own"]]
    assert (own["schedule"], own["against_own"]) == ("1f1b", 0)
    assert document["candidates"][0]["against_own"] == pytest.approx(25.5 / 33 - 1)


@pytest.mark.parametrize(
    "options", [["--stages", "4"], ["--stages", "2", "--microbatches", "6", "--schedule", "gpipe"]]
)
def test_compare_of_sizes_says_options_that_plan_as_predicted(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    document = printed(capsys, "plan", "--compare", *options)
    assert len(document["candidates"]) > 15
    for each in document["candidates"]:
        words = " ".join(each["options"]).split()
        assert printed(capsys, "plan", *options[:2], *words)["makespan"] == each["step"]


def test_compare_of_a_job_says_settings_that_plan_as_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = str(write_costs(tmp_path, embeddings=part(2, 1, optimizer=3), head=part(1, 5), action_seconds=0.25))
    job = job_file(tmp_path)
    document = printed(capsys, "plan", job, "--compare", "--costs", costs)
    assert document["basis"] == "profile"
    assert {each["num_microbatches"] for each in document["candidates"]} == {4, 8, 16}
    own = [each for each in document["candidates"] if each["is_own"]]
    assert [(each["schedule"], each["options"]) for each in own] == [("gpipe", [])]
    for each in document["candidates"]:
        words = " ".join(each["options"]).split()
        assert printed(capsys, "plan", job, "--costs", costs, *words)["makespan"] == each["step"]


def test_compare_as_a_table_shows_the_best_the_jobs_own_and_what_selects_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", job_file(tmp_path, schedule="naive"), "--compare"]) == 0
    table, _, notes = capsys.readouterr().out.partition("\n\n")
    rows = [line.split(maxsplit=10) for line in table.splitlines()]
    columns = ["RANK", "SCHEDULE", "CHUNKS", "MICROBATCHES", "LAYERS", "STEP", "AGAINST", "BUBBLE", "HELD", "MEMORY"]
    assert rows[0] == [*columns, "SELECTED BY"]
    # P=3, M=16 of half the length: 24 + (P-1)/2/2
    best = ["1", "zbv", "2", "16", "even", "24.5", f"{24.5 / 72 - 1:+.1%}", "2.0%", "3", "-"]
    assert rows[1][:10] == best
    assert rows[1][10].split("--set ")[1:] == [
        "schedule.name=zbv ", "schedule.num_chunks=2 ", "schedule.num_microbatches=16",
    ]  # fmt: skip
    assert len(rows) == 1 + 12 + 1
    assert rows[-1][1:] == ["naive", "1", "8", "even", "72", "+0.0%", "66.7%", "1", "-", "what the job says"]
    assert "AGAINST the job's own" in notes
    assert "not shown: " in notes


def test_compare_of_more_than_is_tried_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(choice, "MAX_FORWARDS", 100)  # one schedule has 4 x 8 forwards, two chunks twice as many
    document = printed(capsys, "plan", "--compare", "--stages", "4", "--schedule", "zbv", "--chunks", "2")
    assert [each["schedule"] for each in document["candidates"]] == ["zbv", "1f1b"]
    assert {each["schedule"] for each in document["left_out"]} >= {"gpipe", "zbh1", "interleaved"}
    assert all(" and 100 of all candidates together are tried" in each["reason"] for each in document["left_out"])
    assert main(["plan", "--compare", "--stages", "4"]) == 0
    assert "left out: interleaved x 3 chunks, 8 microbatches: a step has 96 forwards" in capsys.readouterr().out


def test_plan_by_costs_is_in_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = write_costs(
        tmp_path,
        layers=[part(0.001, 0.002)],
        step_seconds=0.5,
        first_backward_seconds=0.0,
        transfer={"latency_seconds": 0.002, "seconds_per_byte": 0.001, "bytes_per_row": 0.25},
    )
    document = printed(capsys, "plan", job_file(tmp_path), "--costs", str(costs))
    # Two layers a stage and 3 % more for 3 rows more; two ways there and two back of 2 ms and 1 ms.
    makespan = 1.03 * 0.001 * 2 * 3 * (8 + 2) + 4 * 0.003 + 0.5
    assert document["makespan"] == pytest.approx(makespan)
    assert document["basis"] == "profile"
    assert main(["plan", job_file(tmp_path), "--costs", str(costs)]) == 0
    rows = {line[:19].strip(): line[19:] for line in capsys.readouterr().out.splitlines()}
    assert rows["makespan"] == f"{makespan * 1000:.4g} ms  (by profile costs; transfer 0.003 s)"


def test_plan_by_costs_of_the_job_file_or_an_option_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = write_costs(tmp_path)
    by_option = printed(capsys, "plan", job_file(tmp_path), "--costs", str(costs))
    assert printed(capsys, "plan", job_file(tmp_path, costs="costs.json")) == by_option


def test_plan_as_a_trace_by_costs_is_in_seconds(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    costs = write_costs(tmp_path, layers=[part(0.5, 2)], rows=[4, 104])
    assert main(["plan", job_file(tmp_path), "--costs", str(costs), "--perfetto", str(trace)]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    forwards = {each["dur"] for each in events if each.get("ph") == "X" and each["name"] == "0F0"}
    assert forwards == {1_000_000}  # microseconds


def test_plan_by_costs_of_another_precision_has_a_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = write_costs(tmp_path, precision="bf16")
    assert main(["plan", job_file(tmp_path), "--costs", str(costs)]) == 0
    assert capsys.readouterr().err == (
        "notice: parallel.costs was made with train.precision bf16, but the job has fp32; measure it again\n"
    )


def test_auto_is_told_with_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = job_file(tmp_path, schedule="auto")
    document = printed(capsys, "plan", job)
    assert (document["schedule"], document["num_chunks"], document["makespan"]) == ("zbv", 2, 25)
    assert [each["schedule"] for each in document["choice"]["candidates"]][:2] == ["zbv", "dualpipev"]
    for command, line in (("plan", "chosen             "), ("validate", "chosen    ")):
        assert main([command, job]) == 0
        told = f"{line}zbv x 2 chunks, 8 microbatches, the shortest step of 25 by equal stages; dualpipev +0.0%, "
        assert told in capsys.readouterr().out
    assert printed(capsys, "validate", job)["schedule"] == "zbv"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--compare"], "there is nothing to plan"),
        (["--compare", "--stages", "4", "--warmup", "eager"], "--warmup is given, but --compare has it only of a job"),
        (["--compare", "--stages", "4", "--file", "p.csv"], "--file is given, but --compare has it only of a job"),
        (["--compare", "--stages", "4", "--svg", "p.svg"], "--compare makes many plans; leave --csv, --svg"),
        (["--compare", "--stages", "4", "--schedule", "zbv", "--chunks", "3"], "--chunks is 3, but zbv needs 2"),
        (["--compare", "--stages", "4", "--schedule", "fast"], "schedule 'fast' is not built; choose one of: naive"),
        (["--stages", "4", "--costs", "costs.json"], "--costs tells of the model of a job file, and none was given"),
    ],
)
def test_compare_refuses_what_it_cannot_compare(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert said in captured.err


@pytest.mark.parametrize("compare", [(), ("--compare",)])
def test_comm_in_forwards_beside_costs_in_seconds_is_refused(
    compare: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = str(write_costs(tmp_path))
    assert main(["plan", job_file(tmp_path), "--costs", costs, "--comm", "1", *compare]) == 2
    assert "--comm is in forwards, but this is predicted by costs in seconds" in capsys.readouterr().err
