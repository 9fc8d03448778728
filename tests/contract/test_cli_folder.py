"""Commands that read the state folder where no coordinator answers."""

import json
from pathlib import Path

import pytest

from coordinator.cli import source
from coordinator.cli.app import main
from coordinator.records import JobRecord, JobState, StateChange, StepRecord, WorkerRecord
from coordinator.store import Store

NOBODY = "127.0.0.1:9"


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state folder with the jobs `older`, which succeeded, and `newer`, which waits."""
    monkeypatch.setattr(source, "DEFAULT_COORDINATOR", NOBODY)
    monkeypatch.delenv("TAKT_COORDINATOR", raising=False)
    store = Store.open(tmp_path, owner="c")
    for number, name in enumerate(("older", "newer")):
        store.add_job(
            JobRecord(
                id=name,
                name="demo",
                spec_json="{}",
                digest=name,
                owner="c",
                num_slots=2,
                state=JobState.QUEUED,
                reason="waits for 2 slots",
                created=100.0 + number,
            )
        )
    store.set_workers(
        "older",
        [
            WorkerRecord(worker=worker, stages=(worker,), dp_rank=0, host="h", state="ended", parameters=5 + worker)
            for worker in range(2)
        ],
    )
    store.add_step(
        "older",
        StepRecord(
            step=1,
            epoch=0,
            loss=0.5,
            grad_norm=1.0,
            learning_rate=0.1,
            examples=8,
            tokens=80,
            padded_tokens=0,
            seconds=2.0,
            skipped=False,
        ),
    )
    store.change_state(
        "older", StateChange(state=JobState.SUCCEEDED, reason="all steps done", attempt=1, step=1, time=110.0)
    )
    store.close()
    logs = tmp_path / "jobs" / "older" / "logs"
    logs.mkdir(parents=True)
    for worker in range(2):
        (logs / f"worker-{worker}.log").write_text(f"hello from {worker}\nbye from {worker}\n")
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    assert main([*argv, "--output", "json"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_list_from_the_folder_has_the_newest_first(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = answer(capsys, "list", "--state-dir", str(state_dir))["jobs"]
    assert [job["id"] for job in jobs] == ["newer", "older"]  # type: ignore[attr-defined]


def test_list_by_page_tells_how_to_go_on(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--state-dir", str(state_dir)]
    first = answer(capsys, "list", "--limit", "1", *folder)
    token = str(first["next_page"])
    second = answer(capsys, "list", "--limit", "1", "--page", token, *folder)
    assert [page["schema"] for page in (first, second)] == ["takt/v1"] * 2
    assert [page["jobs"][0]["id"] for page in (first, second)] == ["newer", "older"]  # type: ignore[index]
    assert second["next_page"] is None
    assert main(["list", "--limit", "1", *folder]) == 0
    captured = capsys.readouterr()
    assert "older" not in captured.out
    assert captured.err == f"there are more: --page {token}\n"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--state", "succeeded"], ["older"]),
        (["--state", "QUEUED", "--state", "SUCCEEDED"], ["newer", "older"]),
        (["--prefix", "new"], ["newer"]),
        (["--prefix", "demo", "--state", "FAILED"], []),
    ],
)
def test_list_is_chosen_by_state_and_prefix(
    state_dir: Path, capsys: pytest.CaptureFixture[str], options: list[str], found: list[str]
) -> None:
    jobs = answer(capsys, "list", "--state-dir", str(state_dir), *options)["jobs"]
    assert [job["id"] for job in jobs] == found  # type: ignore[attr-defined]


@pytest.mark.parametrize("option", [["--state", "DONE"], ["--page", "x"], ["--limit", "0"]])
def test_list_of_what_cannot_be_exits_2(state_dir: Path, capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    assert main(["list", "--state-dir", str(state_dir), *option]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_list_without_a_limit_goes_through_all_pages(
    state_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.cli.commands.list.PAGE_SIZE", 1)
    listed = answer(capsys, "list", "--state-dir", str(state_dir))
    assert ([job["id"] for job in listed["jobs"]], listed["next_page"]) == (["newer", "older"], None)  # type: ignore[attr-defined]


def test_status_from_the_folder_tells_what_the_store_keeps(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = answer(capsys, "status", "older", "--state-dir", str(state_dir))
    assert (job["state"], job["loss"], job["examples_per_second"]) == ("SUCCEEDED", 0.5, 4.0)
    assert [worker["parameters"] for worker in job["workers"]] == [5, 6]  # type: ignore[attr-defined]
    assert job["ended"] == "1970-01-01T00:01:50.000Z"


def test_status_of_a_job_that_the_folder_does_not_know_exits_3(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "nobody", "--state-dir", str(state_dir)]) == 3
    assert "no job nobody" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], ["worker 0 | hello from 0", "worker 0 | bye from 0", "worker 1 | hello from 1", "worker 1 | bye from 1"]),
        (["--tail", "1"], ["worker 0 | bye from 0", "worker 1 | bye from 1"]),
        (["--stage", "1"], ["worker 1 | hello from 1", "worker 1 | bye from 1"]),
        (["--stage", "1", "--tail", "0"], []),
        (["--follow", "--stage", "0"], ["worker 0 | hello from 0", "worker 0 | bye from 0"]),
    ],
)
def test_logs_from_the_folder_are_chosen_by_stage_and_tail(
    state_dir: Path, capsys: pytest.CaptureFixture[str], options: list[str], lines: list[str]
) -> None:
    assert main(["logs", "older", "--state-dir", str(state_dir), *options]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_logs_of_a_stage_that_nobody_holds_exits_3(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "older", "--state-dir", str(state_dir), "--stage", "7"]) == 3
    assert "holds stage 7" in capsys.readouterr().err


def test_wait_for_a_job_that_has_ended_needs_no_coordinator(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wait", "older", "--state-dir", str(state_dir)]) == 0
    assert "SUCCEEDED" in capsys.readouterr().out


def test_wait_for_a_job_that_nobody_works_on_exits_5(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wait", "newer", "--state-dir", str(state_dir)]) == 5
    assert "no coordinator answers" in capsys.readouterr().err


def test_list_with_neither_coordinator_nor_folder_exits_5(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--state-dir", str(state_dir / "nothing")]) == 5
    assert f"{state_dir / 'nothing'} is no state folder" in capsys.readouterr().err


def test_list_from_a_folder_whose_store_is_damaged_is_one_clear_error(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state_dir / "takt.db").write_bytes(b"this is no database" * 100)
    assert main(["list", "--state-dir", str(state_dir)]) == 5
    captured = capsys.readouterr()
    assert "takt.db cannot be read" in captured.err
    assert "Traceback" not in captured.err
