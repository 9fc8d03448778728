"""The plan file of a custom schedule: its text takes the place of its path; what cannot be read is told by name."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator.jobfile import load_job, read_plan
from coordinator.problem import SpecError
from coordinator.sections import MAX_PLAN_BYTES
from coordinator.spec import from_json, parse_spec, to_json

PLAN = "0F0,0B0\n1F0,1B0\n"
DOCUMENT = {"name": "a", "model": {"config": {"model_type": "bert"}}, "data": {"task": "demo"}}


def job_file(folder: Path, schedule: str) -> Path:
    """Write a job whose line 4 is ``schedule``."""
    path = folder / "job.yaml"
    path.write_text(f"name: a\nmodel: {{config: {{model_type: bert}}}}\ndata: {{task: demo}}\n{schedule}\n")
    return path


def custom(folder: Path, place: str) -> Path:
    return job_file(folder, f"schedule: {{name: custom, num_microbatches: 1, file: {place}}}")


def problems_of(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_job(path, overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("place", ["plan.csv", "./plan.csv", "../jobs/plan.csv", "~/plan.csv"])
def test_plan_file_is_taken_from_the_job_files_folder_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "plan.csv").write_text(PLAN)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    spec = load_job(custom(folder, place).relative_to(tmp_path))
    assert spec.schedule.file == PLAN
    assert from_json(to_json(spec)) == spec


@pytest.mark.parametrize("override", ["schedule.file=plan.csv", "schedule={name: custom, file: plan.csv}"])
def test_plan_file_of_an_override_is_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "plan.csv").write_text(PLAN)
    (tmp_path / "plan.csv").write_text("another\n")
    path = custom(tmp_path, "plan.csv")
    monkeypatch.chdir(tmp_path / "here")
    assert load_job(path, [override]).schedule.file == PLAN


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbf0F0,0B0\r\n1F0,1B0", "0F0,0B0\r\n1F0,1B0\n"),
        (b"0F0,0B0", "0F0,0B0\n"),  # one worker and no line end: a text all the same
    ],
    ids=["from a spreadsheet", "one line"],
)
def test_plan_file_without_a_last_line_end_is_given_one(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "plan.csv").write_bytes(content)
    assert load_job(custom(tmp_path, "plan.csv")).schedule.file == text


def test_job_file_that_holds_the_plan_itself_is_taken_as_spec_json_is(tmp_path: Path) -> None:
    assert load_job(custom(tmp_path, r'"0F0,0B0\n1F0,1B0\n"')).schedule.file == PLAN
    spec_json = tmp_path / "spec.json"
    spec_json.write_text(to_json(load_job(custom(tmp_path, r'"0F0,0B0\n1F0,1B0\n"'))))
    assert load_job(spec_json).schedule.file == PLAN


def test_plan_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = custom(tmp_path, "no.csv")
    assert problems_of(path) == [f"{path}:4: schedule.file: {tmp_path}/no.csv: there is no such plan file"]


def test_plan_file_of_an_override_that_is_not_there_is_refused_at_the_override(tmp_path: Path) -> None:
    (problem,) = problems_of(custom(tmp_path, "plan.csv"), f"schedule.file={tmp_path}/no.csv")
    assert problem == f"--set schedule.file: schedule.file: {tmp_path}/no.csv: there is no such plan file"


def test_plan_file_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(custom(tmp_path, "."))
    assert problem.endswith(f"schedule.file: {tmp_path}: cannot be read: Is a directory")


def test_plan_file_that_is_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with open(writer, "w") as file, ThreadPoolExecutor(1) as threads:
        threads.submit(file.write, PLAN).add_done_callback(lambda _: file.close())
        assert read_plan(Path(f"/dev/fd/{reader}")) == PLAN
    os.close(reader)


def test_plan_file_that_is_a_pipe_nobody_writes_to_is_empty_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.csv")
    assert read_plan(tmp_path / "plan.csv") == "\n"


def test_plan_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.csv").write_bytes(b"0F0\xff\n")
    (problem,) = problems_of(custom(tmp_path, "plan.csv"))
    assert problem.endswith(f"schedule.file: {tmp_path}/plan.csv: is not UTF-8 text: invalid start byte")


def test_plan_file_that_is_too_large_is_refused_and_the_largest_is_read(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_bytes(b"," * (MAX_PLAN_BYTES - 1) + b"\n")
    assert len(load_job(custom(tmp_path, "plan.csv")).schedule.file or "") == MAX_PLAN_BYTES
    plan.write_bytes(b"," * (MAX_PLAN_BYTES + 1))
    (problem,) = problems_of(custom(tmp_path, "plan.csv"))
    assert problem.endswith(f"plan.csv: has more than {MAX_PLAN_BYTES} bytes, is no plan file")


def test_plan_file_that_is_not_there_is_told_beside_the_other_problems(tmp_path: Path) -> None:
    path = custom(tmp_path, "no.csv")
    path.write_text(path.read_text() + "train: {epoch: 3}\n")
    assert [problem.split(": ")[1] for problem in problems_of(path)] == ["schedule.file", "train.epoch"]


def refusals(**schedule: object) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        parse_spec({**DOCUMENT, "schedule": schedule})
    return {problem.key: problem.message for problem in caught.value.problems}


def test_spec_with_a_path_where_the_plans_text_belongs_is_refused() -> None:
    assert refusals(name="custom", file="plan.csv") == {
        "schedule.file": "is 'plan.csv', a path; a spec holds the text of the plan, one line a worker"
    }


def test_spec_of_custom_without_a_file_is_refused() -> None:
    assert refusals(name="custom") == {"schedule.file": "is missing; custom needs the file of a plan as CSV"}


@pytest.mark.parametrize("file", [PLAN, "plan.csv"])
def test_spec_with_a_file_that_its_schedule_does_not_read_is_refused(file: str) -> None:
    assert refusals(name="gpipe", file=file) == {
        "schedule.file": "is given, but schedule.name is gpipe and only custom reads a plan; leave one of the two out"
    }


@pytest.mark.parametrize(("file", "told"), [("", "''"), (3, "3"), (["plan.csv"], '["plan.csv"]')])
def test_spec_with_a_file_that_is_no_text_is_refused(file: object, told: str) -> None:
    assert refusals(name="custom", file=file) == {
        "schedule.file": f"is {told}, needs text of 1 to {MAX_PLAN_BYTES} characters, or null"
    }
