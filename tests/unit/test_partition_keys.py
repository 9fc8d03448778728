"""The keys of a job that say which layers its stages hold: refusals, and what a plan shows of them."""

import json
from pathlib import Path

import pytest

from coordinator.cli import preflight
from coordinator.cli.app import main
from coordinator.problem import SpecError
from coordinator.spec import JobSpec, parse_spec
from tests.unit.cli_facts import facts

ZBV = {"name": "zbv", "num_chunks": 2}


def spec(**sections: object) -> JobSpec:
    return parse_spec({"name": "a", "model": {"config": {"model_type": "bert"}}, "data": {"task": "demo"}, **sections})


@pytest.mark.parametrize(
    "sections",
    [
        {"parallel": {"pp": 2, "layers_per_stage": [1, 3]}},
        {"parallel": {"pp": 2, "layers_per_stage": [1, 3], "partition": "even"}},
        {"parallel": {"pp": 2, "layers_per_stage": [1, 3, 2, 4]}, "schedule": ZBV},
        {"parallel": {"pp": 1, "layers_per_stage": [7]}},
    ],
)
def test_spec_with_one_number_a_stage_is_taken(sections: dict[str, object]) -> None:
    parallel = sections["parallel"]
    assert isinstance(parallel, dict)
    assert spec(**sections).parallel.layers_per_stage == tuple(parallel["layers_per_stage"])


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"parallel": {"layers_per_stage": [1]}}, "has 1 number for 2 stages; give one number a stage"),
        ({"parallel": {"layers_per_stage": []}}, "has 0 numbers for 2 stages; give one number a stage"),
        ({"parallel": {"pp": 1, "layers_per_stage": [2, 2]}}, "has 2 numbers for 1 stage; give one number a stage"),
        (
            {"parallel": {"layers_per_stage": [2, 2]}, "schedule": ZBV},
            "has 2 numbers for 4 stages (2 workers x 2 chunks); give one number a stage",
        ),
        (
            {"parallel": {"pp": 1, "layers_per_stage": [2]}, "schedule": ZBV},
            "has 1 number for 2 stages (1 worker x 2 chunks); give one number a stage",
        ),
        (
            {"parallel": {"layers_per_stage": [2, 0]}},
            "is [2, 0], needs a list, each entry an integer from 1 to 2147483647, or null",
        ),
        (
            {"parallel": {"layers_per_stage": 3}},
            "is 3, needs a list, each entry an integer from 1 to 2147483647, or null",
        ),
    ],
)
def test_spec_whose_numbers_are_not_those_of_its_stages_is_refused(sections: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(**sections)
    assert [(problem.key, problem.message) for problem in caught.value.problems] == [
        ("parallel.layers_per_stage", message)
    ]


def job_file(folder: Path, parallel: str) -> str:
    path = folder / "job.yaml"
    path.write_text(f"name: a\nmodel: {{config: {{model_type: bert}}}}\ndata: {{task: demo}}\nparallel: {parallel}\n")
    return str(path)


@pytest.mark.parametrize(
    ("given", "layers", "shown"),
    [("{pp: 2}", [3, 3], "3 each"), ("{pp: 2, layers_per_stage: [1, 5]}", [1, 5], "1, 5")],
)
def test_plan_of_a_job_tells_the_layers_of_each_stage(
    given: str,
    layers: list[int],
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(preflight, "local_facts", facts)
    job = job_file(tmp_path, given)
    assert main(["plan", job, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers_per_stage"] == layers
    assert main(["plan", job]) == 0
    assert f"layers             {shown}  (of each stage)\n" in capsys.readouterr().out
