"""The file of costs that a job names: its text takes the place of its path; what is wrong with it is told by key."""

import json
from pathlib import Path

import pytest

from coordinator.costs import from_text
from coordinator.jobfile import load_job
from coordinator.problem import SpecError
from coordinator.sections import MAX_COSTS_BYTES
from coordinator.spec import from_json, parse_spec, to_json
from tests.unit.job_costs import costs, write_costs

DOCUMENT = {"name": "a", "model": {"config": {"model_type": "bert"}}, "data": {"task": "demo"}}


def job_file(folder: Path, place: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(
        f"name: a\nmodel: {{config: {{model_type: bert}}}}\ndata: {{task: demo}}\nparallel: {{costs: {place}}}\n"
    )
    return path


def problem_of(path: Path, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_job(path, overrides)
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize("place", ["costs.json", "./costs.json", "../jobs/costs.json", "~/costs.json"])
def test_costs_are_taken_from_the_job_files_folder_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    text = write_costs(folder, device="here").read_text()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    spec = load_job(job_file(folder, place).relative_to(tmp_path))
    assert spec.parallel.costs == text
    assert from_text(text).device == "here"
    assert from_json(to_json(spec)) == spec
    spec_json = tmp_path / "spec.json"
    spec_json.write_text(to_json(spec))
    assert load_job(spec_json) == spec


def test_job_file_that_holds_the_costs_themselves_on_one_line_is_taken_as_spec_json_is(tmp_path: Path) -> None:
    text = json.dumps(costs())
    assert load_job(job_file(tmp_path, json.dumps(text))).parallel.costs == text


def test_costs_of_an_override_are_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    here = write_costs(tmp_path / "here", device="here")
    monkeypatch.chdir(tmp_path / "here")
    spec = load_job(job_file(tmp_path, "no.json"), ["parallel.costs=costs.json"])
    assert spec.parallel.costs == here.read_text()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "is no JSON object; needs what takt profile writes"),
        ("{", "is not JSON: "),
        ("[" * 100_000, "is nested too deep"),
        ('{"schema": "takt/v1", "kind": "plan"}', "kind is 'plan', needs 'costs'"),
        ('{"schema": "takt/v1", "kind": "costs", "source": "x"}', "source: is 'x'; input should be"),
        (" " * (MAX_COSTS_BYTES + 1), f"has more than {MAX_COSTS_BYTES} bytes"),
    ],
    ids=["list", "cut off", "deep", "kind", "value", "large"],
)
def test_costs_that_are_none_are_refused_with_the_file_and_the_key(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "costs.json").write_text(content)
    path = job_file(tmp_path, "costs.json")
    assert problem_of(path).startswith(f"{path}:4: parallel.costs: {tmp_path}/costs.json: {said}")


def test_costs_that_are_not_there_are_refused_at_the_override(tmp_path: Path) -> None:
    path = job_file(tmp_path, "null")
    said = problem_of(path, f"parallel.costs={tmp_path}/no.json")
    assert said == f"--set parallel.costs: parallel.costs: {tmp_path}/no.json: there is no such costs file"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("costs.json", "is 'costs.json', a path; a spec holds the text of the file"),
        ("{}", "holds no costs: schema is None, needs 'takt/v1'"),
        ('{"a": NaN}', "holds no costs: schema is None"),
    ],
)
def test_spec_whose_costs_are_a_path_or_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**DOCUMENT, "parallel": {"costs": text}})
    (problem,) = caught.value.problems
    assert problem.key == "parallel.costs"
    assert problem.message.startswith(said)
