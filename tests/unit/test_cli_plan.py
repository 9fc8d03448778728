"""`takt plan`: the issue's numbers, CSV, refusals, and the grid in a narrow terminal."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from coordinator.cli import preflight
from coordinator.cli.app import main
from coordinator.cli.plan_view import fold
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.plan import make_plan
from tests.unit.cli_facts import facts

FIELDS = (
    "schema, schedule, num_stages, num_chunks, num_microbatches, makespan, ideal, bubble_fraction, peak_in_flight, "
    "num_weight_versions, orders, num_commands"
)


def plan_json(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert main(["plan", *options, "--output", "json"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize(
    ("options", "makespan", "in_flight"),
    [
        ("--schedule 1f1b", 33, [4, 3, 2, 1]),
        ("--schedule 1f1b --warmup eager", 33, [7, 5, 3, 1]),
        ("--schedule 1f1b --warmup 6,4,2,0", 33, [7, 5, 3, 1]),
        ("--schedule gpipe", 33, [8, 8, 8, 8]),
        ("--schedule naive", 96, [1, 1, 1, 1]),
        ("--schedule interleaved --chunks 2", 28.5, [5.5, 4.5, 3.5, 2.5]),
        ("--schedule interleaved --chunks 4", 26.25, [4.75, 4.25, 3.75, 3.25]),
        ("--schedule looped_bfs --chunks 2", 28.5, [8, 8, 8, 8]),
        ("--schedule zbh1", 27, [4, 4, 4, 4]),
        ("--schedule zbh2", 27, [7, 7, 7, 7]),
        ("--schedule zbv --chunks 2", 25.5, [4, 4, 4, 4]),
        ("--schedule dualpipev --chunks 2", 25.5, [4.5, 4.5, 4.5, 4.5]),
    ],
)
def test_plan_of_4_workers_and_8_microbatches_is_the_published_one(
    options: str, makespan: float, in_flight: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    document = plan_json(capsys, *options.split(), "--stages", "4", "--microbatches", "8")
    assert document["makespan"] == makespan
    assert document["bubble_fraction"] == pytest.approx(1 - 24 / makespan, abs=1e-12)
    assert document["peak_in_flight"] == in_flight
    assert document["ideal"] == 24
    assert (document["num_stages"], document["num_weight_versions"]) == (4, [1, 1, 1, 1])


def test_plan_of_groups_larger_than_the_pipeline_is_shorter_than_that_of_the_smallest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # P=4, v=2, M=9: 4.5 more than M(F + B) in groups of 5, where groups of 4 leave a last one of 1
    options = ("--schedule", "interleaved", "--stages", "4", "--chunks", "2", "--microbatches", "9")
    assert plan_json(capsys, *options, "--group-size", "5")["makespan"] == 27 + 4.5
    assert main(["plan", *options]) == 2


def test_plan_in_a_v_has_first_and_last_stage_on_worker_0(capsys: pytest.CaptureFixture[str]) -> None:
    document = plan_json(capsys, "--schedule", "zbv", "--stages", "4", "--chunks", "2")
    orders = document["orders"]
    assert isinstance(orders, list)
    assert (document["num_stages"], document["num_chunks"], len(orders)) == (4, 2, 4)
    assert {action[0] for action in orders[0]} == {"0", "7"}
    assert {action[1] for action in orders[0]} == set("FBIW")


def test_plan_json_has_the_contracts_fields_and_names_actions_as_stage_op_microbatch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = plan_json(capsys, "--stages", "2", "--microbatches", "2")
    assert set(document) == set(FIELDS.split(", "))
    assert document["schema"] == "takt/v1"
    assert document["orders"] == [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    # each worker: 4 computes, 4 transfers, reduce and step
    assert document["num_commands"] == 20


def test_plan_without_orders_leaves_only_them_out(capsys: pytest.CaptureFixture[str]) -> None:
    document = plan_json(capsys, "--stages", "2", "--no-orders")
    assert set(document) == set(FIELDS.split(", ")) - {"orders"}


def test_plan_with_latency_is_later_by_the_published_formula(capsys: pytest.CaptureFixture[str]) -> None:
    # gpipe: (M + P - 1)(F + B) + 2 (P - 1) c
    document = plan_json(capsys, "--schedule", "gpipe", "--stages", "4", "--microbatches", "8", "--comm", "0.5")
    assert document["makespan"] == pytest.approx(33 + 3)


def test_plan_csv_gives_the_plan_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.csv"
    assert main(["plan", "--schedule", "gpipe", "--stages", "3", "--microbatches", "2", "--csv", str(path)]) == 0
    read = make_custom_plan(path.read_text(), num_workers=3, num_chunks=1, num_microbatches=2)
    assert read.workers == make_plan("gpipe", num_workers=3, num_microbatches=2).workers
    assert "stage 2 | .  .  F0 F1" in capsys.readouterr().out


STEP = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
DESCENDING = "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n"


@pytest.mark.parametrize(
    "options", ["--schedule 1f1b", "--schedule zbv --chunks 2", "--schedule interleaved --chunks 2"]
)
def test_plan_written_as_csv_and_read_as_custom_is_the_same_plan(
    options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    written = plan_json(capsys, *options.split(), "--stages", "4", "--csv", str(first))
    read = plan_json(capsys, "--file", str(first), "--csv", str(second))
    assert read == {**written, "schedule": "custom"}
    assert first.read_text() == second.read_text()


def test_plan_of_a_file_is_refused_where_the_options_say_other_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(STEP)
    good = ("--schedule", "custom", "--stages", "2", "--chunks", "1", "--microbatches", "2", "--file", str(path))
    assert plan_json(capsys, *good)["makespan"] == 9
    for option, numbers in {"--stages": ("2", "7"), "--chunks": ("1", "7"), "--microbatches": ("2", "7")}.items():
        assert main(["plan", "--file", str(path), option, "7"]) == 2
        error = capsys.readouterr().err
        assert all(number in error for number in numbers)


def test_plan_of_a_file_that_breaks_a_rule_shows_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(STEP.replace("1F0,1B0", "1B0,1F0"))
    assert main(["plan", "--file", str(path), "--output", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: the plan breaks the rule: ")
    assert ["[1B0]" in line for line in captured.err.splitlines() if "<--" in line] == [True]


def test_plan_that_does_not_ascend_has_a_notice_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(DESCENDING)
    assert main(["plan", "--file", str(path), "--output", "json"]) == 0
    captured = capsys.readouterr()
    assert set(json.loads(captured.out)) == set(FIELDS.split(", "))
    assert [line[:8] for line in captured.err.splitlines()] == ["notice: "] * 2  # one a stage


def test_plan_as_svg_is_a_picture_headed_by_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.svg"
    plan_json(capsys, "--schedule", "zbv", "--stages", "2", "--chunks", "2", "--microbatches", "4", "--svg", str(path))
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text == "zbv, 2 workers x 2 chunks, 4 microbatches"


def test_plan_as_a_table_tells_sizes_time_memory_and_channels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--stages", "4", "--microbatches", "8"]) == 0
    table, _, grid = capsys.readouterr().out.partition("\n\n")
    rows = [(line[:19].strip(), line[19:]) for line in table.splitlines()]
    assert rows == [
        ("schedule", "1f1b"),
        ("workers", "4"),
        ("chunks", "1  (stages on each worker)"),
        ("microbatches", "8"),
        ("makespan", "33  (forward of a full stage 1, backward 2, transfer 0)"),
        ("ideal", "24"),
        ("bubble", "27.3%"),
        ("bubble per worker", "27.3% each"),
        ("peak in flight", "4, 3, 2, 1  (in full stages)"),
        # 16 computes, REDUCE and STEP on each worker; 8 messages both ways over 3 borders, two ends each
        ("commands", f"{4 * 18 + 3 * 2 * 8 * 2}  (of one step and one replica)"),
        ("channels", "one in-order channel per ordered pair and kind  (what workers use)"),
        ("weaker, unused", "deadlock  blocking calls"),
        ("", "ok        a send posted with the next receive"),
        ("", "deadlock  one in-order channel per pair"),
        ("", "ok        one in-order channel per pair and kind"),
        ("", "ok        one in-order channel per ordered pair"),
    ]
    assert len(grid.splitlines()) == 4


def test_plan_of_very_many_columns_is_told_and_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--stages", "33", "--microbatches", "302"]) == 0
    rows = {line[:19].strip(): line[19:] for line in capsys.readouterr().out.splitlines()}
    # (M + P - 1)(F + B)
    assert rows["picture"].startswith("left out: 1002 columns, at most 1000 are drawn; ")
    assert rows["weaker, unused"] == "not tried, the plan is too large"
    assert rows["peak in flight"].startswith("33, 32, 31, ")
    assert rows["peak in flight"].endswith("..., 1  (in full stages)")
    assert not any(name.startswith(("stage", "worker 0")) for name in rows)


def job_file(folder: Path, *, pp: int) -> str:
    path = folder / "job.yaml"
    path.write_text(
        f"name: a\nmodel: {{config: {{model_type: bert}}}}\ndata: {{task: demo}}\nparallel: {{pp: {pp}}}\n"
        "schedule: {name: gpipe, num_microbatches: 2}\ntrain: {gradient_accumulation_steps: 3}\n"
    )
    return str(path)


def test_plan_of_a_job_is_that_of_its_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    document = plan_json(capsys, job_file(tmp_path, pp=4))
    assert (document["schedule"], document["num_stages"], document["num_microbatches"]) == ("gpipe", 4, 2)
    # a step is 3 slices of 2 microbatches: 6 forwards and backwards, 6 transfers at each end of 3 boundaries, both ways
    assert document["num_commands"] == 4 * (6 + 6 + 2) + 3 * 2 * 2 * 6


@pytest.mark.parametrize(
    ("recompute", "makespan", "peak_activations"),
    [
        ("none", 33, [8, 8, 8, 8]),
        ("full", 44, [1, 1, 1, 1]),
        ("except_last", 43, [2, 2, 2, 2]),
        # Six layers on four stages are 2, 2, 1, 1; the last one's backward is the first to begin.
        ("1", None, [4.5, 4.5, 1, 1]),
        ("[0, 1, 1, 0]", None, [8, 4.5, 1, 8]),
    ],
)
def test_plan_of_a_job_that_recomputes_tells_the_time_that_it_costs_and_the_activations_that_it_frees(
    recompute: str,
    makespan: float | None,
    peak_activations: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    one_slice = ("--set", "train.gradient_accumulation_steps=1", "--microbatches", "8")
    document = plan_json(capsys, job_file(tmp_path, pp=4), *one_slice, "--set", f"train.recompute={recompute}")
    assert set(document) == {*FIELDS.split(", "), "peak_activations", "layers_per_stage"}
    assert document["peak_activations"] == peak_activations
    assert document["peak_in_flight"] == [8, 8, 8, 8]
    assert makespan in (None, document["makespan"])


def test_plan_of_a_job_that_keeps_the_last_microbatch_keeps_that_of_the_step_not_of_each_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    document = plan_json(capsys, job_file(tmp_path, pp=1), "--set", "train.recompute=except_last")
    assert document["makespan"] == 6 * 4 - 1  # three slices of two
    assert document["peak_activations"] == [2]


def test_plan_of_a_job_that_recomputes_as_a_table_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    svg = tmp_path / "plan.svg"
    job = job_file(tmp_path, pp=2)
    options = ("--set", "train.gradient_accumulation_steps=1", "--schedule", "1f1b", "--svg", str(svg))
    assert main(["plan", job, *options, "--set", "train.recompute=except_last"]) == 0
    table, _, grid = capsys.readouterr().out.partition("\n\n")
    rows = {line[:19].strip(): line[19:] for line in table.splitlines()}
    assert (
        rows["recompute"] == "100% each  (of a stage's forward, again in its backward, but not of the last microbatch)"
    )
    assert rows["peak in flight"] == "2, 1  (in full stages)"
    assert rows["peak activations"] == "2, 1  (held at once, in full stages)"
    assert rows["makespan"].startswith("10  (forward of a full stage 1, backward 2, transfer 0)")
    assert grid == ("stage 0 | F0 F1 .  .  .  B0------ B1---\nstage 1 | .  F0 B0------ F1 B1--- .  .\n")
    assert "recompute 100% each, but not of the last microbatch: makespan 10, bubble" in svg.read_text()
    assert main(["plan", job, *options, "--set", "train.recompute=[1, 2]"]) == 0
    assert "recompute          33%, 67%  (of a stage's forward, again in its backward)" in capsys.readouterr().out
    assert main(["plan", job, *options]) == 0
    assert "peak activations" not in capsys.readouterr().out


def test_plan_of_a_job_with_options_is_that_of_the_schedule_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    monkeypatch.chdir(tmp_path)
    job = job_file(tmp_path, pp=4)

    def planned(*options: str) -> tuple[object, ...]:
        document = plan_json(capsys, job, *options)
        return tuple(document[name] for name in ("schedule", "num_stages", "num_chunks", "num_microbatches"))

    assert planned("--schedule", "zbv", "--stages", "2", "--chunks", "2", "--microbatches", "4") == ("zbv", 2, 2, 4)
    assert planned("--microbatches", "4", "--set", "schedule.num_microbatches=5") == ("gpipe", 4, 1, 4)
    assert planned("--schedule", "1f1b", "--warmup", "eager", "--stages", "2") == ("1f1b", 2, 1, 2)
    assert planned("--schedule", "1f1b", "--warmup", "1,0", "--stages", "2") == ("1f1b", 2, 1, 2)
    interleaved = ("--schedule", "interleaved", "--chunks", "2", "--stages", "2", "--group-size", "2")
    assert planned(*interleaved) == ("interleaved", 2, 2, 2)
    (tmp_path / "plan.csv").write_text(STEP)
    # the plan covers all three slices
    assert planned("--file", "plan.csv", "--stages", "2", "--set", "train.gradient_accumulation_steps=1") == (
        "custom", 2, 1, 2,
    )  # fmt: skip


def test_plan_of_a_job_with_options_that_do_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", job_file(tmp_path, pp=4), "--schedule", "zbv"]) == 2
    assert "schedule.num_chunks: is 1, but zbv needs 2" in capsys.readouterr().err


def test_plan_of_a_job_that_its_model_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    assert main(["plan", job_file(tmp_path, pp=7), "--output", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: parallel.pp: is 7, but the model has 6 layers")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give a job file, or --stages"),
        (["--stages", "0"], "--stages is 0"),
        (["--stages", "-3"], "--stages is -3"),
        (["--stages", "2", "--microbatches", "0"], "--microbatches is 0"),
        (["--stages", "10000000000000000000000"], "at most 1048576"),
        (["--stages", "two"], "--stages"),
        (["--stages", "2", "--schedule", "pipedream"], "choose one of: naive, gpipe, 1f1b, interleaved, looped_bfs"),
        (["--stages", "2", "--schedule", "auto"], "choose one of: "),
        (["--stages", "2", "--schedule", "zbv"], "error: --chunks is 1, but zbv needs 2"),
        (
            ["--stages", "2", "--schedule", "dualpipev", "--chunks", "2", "--microbatches", "3"],
            "error: --microbatches is 3, but dualpipev on 2",
        ),
        (
            ["--stages", "4", "--schedule", "interleaved", "--chunks", "2", "--group-size", "3"],
            "error: --group-size is 3",
        ),
        (["--stages", "4", "--schedule", "gpipe", "--warmup", "eager"], "error: --warmup is eager, but gpipe"),
        (["--stages", "4", "--warmup", "3,2,1"], "error: --warmup has 3 numbers for 4 workers"),
        (["--stages", "4", "--warmup", "3"], "error: --warmup has 1 number for 4 workers"),
        (["--stages", "4", "--warmup", "lazy"], "error: --warmup is lazy, need eager"),
        (["--stages", "4", "--warmup", "3;2;1;0"], "--warmup is '3;2;1;0', needs eager, or a number a stage"),
        (["--stages", "4", "--group-size", "4"], "error: --group-size is 4, but 1f1b has no groups"),
        (["--schedule", "custom", "--stages", "2"], "--schedule custom needs a plan; give it with --file"),
        (["--schedule", "gpipe", "--file", "plan.csv"], "--file holds a custom plan, but --schedule is gpipe"),
        (["--file", "no-such-plan.csv"], "--file no-such-plan.csv: there is no such plan file"),
        (["--file", "plan.csv", "--warmup", "eager"], "--warmup is given, but custom"),
        (["--file", "plan.csv", "--group-size", "4"], "--group-size is given, but custom"),
        (["--stages", "2", "--svg", "/no/such/folder/plan.svg"], "--svg /no/such/folder/plan.svg"),
        (["--stages", "2", "--chunks", "2"], "error: --chunks is 2"),
        (["--stages", "2", "--comm", "nan"], "nan"),
        (["--stages", "2", "--comm", "-1"], "-1"),
        (["--stages", "2", "--comm", "1e308", "--output", "json"], "cost comm is 1e+308, need at most 1000000"),
        (["--stages", "2", "--set", "a=b"], "--set changes a job file"),
        (["--stages", "2", "--csv", "/no/such/folder/plan.csv"], "--csv /no/such/folder/plan.csv"),
        (["no-such-job.yaml"], "no such job file"),
    ],
)
def test_plan_refuses_what_it_cannot_plan(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert said in captured.err
    assert "Traceback" not in captured.err


GRID = """\
stage 0 | F0 F1 .  .  B0--- B1---
stage 1 | .  F0 B0--- F1 B1--- .
"""


def test_fold_to_a_narrow_terminal_continues_the_grid_below() -> None:
    assert fold(GRID, width=27) == (
        "stage 0 | F0 F1 .  .  B0-\nstage 1 | .  F0 B0--- F1\n\nstage 0 | -- B1---\nstage 1 | B1--- .\n"
    )


def test_fold_to_a_wide_terminal_leaves_the_grid_as_it_is() -> None:
    assert fold(GRID, width=33) == GRID
    assert fold(GRID, width=200) == GRID


def test_fold_to_a_terminal_narrower_than_a_cell_still_shows_all_cells() -> None:
    folded = fold(GRID, width=5)
    assert folded.count("stage 0 | ") == 8
