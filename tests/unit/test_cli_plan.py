"""`takt plan`: the issue's numbers, CSV, refusals, and the grid in a narrow terminal."""

import json
from pathlib import Path

import pytest

from coordinator.cli import preflight
from coordinator.cli.app import main
from coordinator.cli.plan_view import fold
from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.schedule.plan import make_plan
from coordinator.schedule.text import from_csv
from coordinator.spec import JobSpec

FIELDS = (
    "schema, schedule, num_stages, num_chunks, num_microbatches, makespan, ideal, bubble_fraction, peak_in_flight, "
    "num_weight_versions, orders, num_commands"
)


def plan_json(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert main(["plan", *options, "--output", "json"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize(
    ("schedule", "makespan", "bubble", "in_flight"),
    [
        ("1f1b", 33, 3 / 11, [4, 3, 2, 1]),
        ("gpipe", 33, 3 / 11, [8, 8, 8, 8]),
        ("naive", 96, 3 / 4, [1, 1, 1, 1]),
    ],
)
def test_plan_of_4_stages_and_8_microbatches_is_the_published_one(
    schedule: str, makespan: float, bubble: float, in_flight: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    document = plan_json(capsys, "--schedule", schedule, "--stages", "4", "--microbatches", "8")
    assert document["makespan"] == makespan
    assert document["bubble_fraction"] == pytest.approx(bubble, abs=1e-12)
    assert document["peak_in_flight"] == in_flight
    assert document["ideal"] == 24
    assert document["num_weight_versions"] == [1, 1, 1, 1]


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
    assert from_csv(path.read_text()) == make_plan("gpipe", num_workers=3, num_microbatches=2).workers
    assert "stage 2 | .  .  F0 F1" in capsys.readouterr().out


def job_file(folder: Path, *, pp: int) -> str:
    path = folder / "job.yaml"
    path.write_text(
        f"name: a\nmodel: {{config: {{model_type: bert}}}}\ndata: {{task: demo}}\nparallel: {{pp: {pp}}}\n"
        "schedule: {name: gpipe, num_microbatches: 2}\ntrain: {gradient_accumulation_steps: 3}\n"
    )
    return str(path)


def facts(_: JobSpec) -> tuple[ModelFacts, DataFacts]:
    model = ModelFacts(
        model_type="bert", num_layers=4, hidden_size=8, max_positions=128, vocabulary_size=96, token_types=2, labels=()
    )
    rows = [Split(name=name, num_rows=64, labelled=True, num_steps=1) for name in ("train", "validation")]
    data = DataFacts(
        splits=tuple(rows), labels=("no", "yes"), num_labels=2, vocabulary_size=96, pad_token_id=0, steps_per_epoch=2,
        total_steps=6,
    )  # fmt: skip
    return model, data


def test_plan_of_a_job_is_that_of_its_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    document = plan_json(capsys, job_file(tmp_path, pp=4))
    assert (document["schedule"], document["num_stages"], document["num_microbatches"]) == ("gpipe", 4, 2)
    # a step is 3 slices of 2 microbatches: 6 forwards and backwards, 6 transfers at each end of 3 boundaries, both ways
    assert document["num_commands"] == 4 * (6 + 6 + 2) + 3 * 2 * 2 * 6


def test_plan_of_a_job_that_its_model_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    assert main(["plan", job_file(tmp_path, pp=5), "--output", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: parallel.pp: is 5, but the model has 4 layers")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give a job file, or --stages"),
        (["--stages", "0"], "--stages is 0"),
        (["--stages", "-3"], "--stages is -3"),
        (["--stages", "2", "--microbatches", "0"], "--microbatches is 0"),
        (["--stages", "10000000000000000000000"], "at most 1048576"),
        (["--stages", "two"], "--stages"),
        (["--stages", "2", "--schedule", "zbv"], "choose one of: naive, gpipe, 1f1b"),
        (["--stages", "2", "--chunks", "2"], "num_chunks is 2"),
        (["--stages", "2", "--comm", "nan"], "nan"),
        (["--stages", "2", "--comm", "-1"], "-1"),
        (["--stages", "2", "--set", "a=b"], "--set changes a job file"),
        (["--stages", "2", "--csv", "/no/such/folder/plan.csv"], "--csv /no/such/folder/plan.csv"),
        (["job.yaml", "--stages", "2"], "--stages does not go with a job file"),
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
