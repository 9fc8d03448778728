"""Asking the facts programs; stand-ins for them are found first because they lie in the current folder."""

import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from takt.v1 import data_pb2

from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.local_facts import local_facts
from coordinator.parts import wants_parts
from coordinator.problem import SpecError
from coordinator.spec import JobSpec, parse_spec

pytestmark = pytest.mark.timeout(30)

GOOD_MODEL = """\
import json, sys
spec = json.load(sys.stdin)
assert sys.argv[1:] == ["facts", "-"], sys.argv
print(json.dumps({
    "model_type": "bert", "num_layers": spec["model"]["config"]["num_hidden_layers"], "hidden_size": 16,
    "max_positions": 32, "vocabulary_size": 96, "token_types": 2, "labels": [], "added_later": 1,
}))
"""
GOOD_DATA = """\
import json, sys
spec = json.load(sys.stdin)
print(json.dumps({
    "splits": [{"name": "train", "rows": 20, "labelled": True, "steps": 1}],
    "labels": ["negative", "positive"], "num_labels": 2, "vocabulary_size": 96, "pad_token_id": 0,
    "steps_per_epoch": 1, "total_steps": spec["train"]["epochs"],
}))
"""


@pytest.fixture
def spec() -> JobSpec:
    config = {"model_type": "bert", "num_hidden_layers": 4}
    return parse_spec({"name": "a", "model": {"config": config}, "data": {"task": "demo"}})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both programs, answering well."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "stage_worker", GOOD_MODEL)
    write(tmp_path, "dataloader_svc", GOOD_DATA)
    return tmp_path


def write(folder: Path, program: str, text: str) -> None:
    (folder / program).mkdir(exist_ok=True)
    (folder / program / "__init__.py").touch()
    (folder / program / "__main__.py").write_text(textwrap.dedent(text))


def problems_of(spec: JobSpec, *, time_limit_seconds: float = 20) -> list[str]:
    with pytest.raises(SpecError) as caught:
        local_facts(spec, time_limit_seconds=time_limit_seconds)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.usefixtures("programs")
def test_local_facts_of_a_good_job_are_what_the_programs_print(spec: JobSpec) -> None:
    model, data = local_facts(spec)
    assert (model.model_type, model.num_layers, model.max_positions, model.token_types) == ("bert", 4, 32, 2)
    assert model.labels == ()
    assert data.split("train") == Split(name="train", num_rows=20, labelled=True, num_steps=1)
    assert data.split("validation") is None
    assert (data.labels, data.total_steps) == (("negative", "positive"), 3)


def test_local_facts_tells_what_both_programs_refuse(programs: Path, spec: JobSpec) -> None:
    write(programs, "stage_worker", "import sys; sys.exit('a warning\\nerror: no folder /m\\n')")
    write(programs, "dataloader_svc", "import sys; print('error: no split', file=sys.stderr); sys.exit(2)")
    assert problems_of(spec) == ["model: no folder /m", "data: no split"]


def test_local_facts_tells_the_key_that_a_program_refuses(programs: Path, spec: JobSpec) -> None:
    write(programs, "stage_worker", "import sys; sys.exit('error: model.config.hiden is no key; near is model.config')")
    write(programs, "dataloader_svc", "import sys; sys.exit('error: data.tokenizer: no file data.json')")
    with pytest.raises(SpecError) as caught:
        local_facts(spec, time_limit_seconds=20)
    assert [(problem.key, problem.message) for problem in caught.value.problems] == [
        ("model.config.hiden", "is no key; near is model.config"),
        ("data.tokenizer", "no file data.json"),
    ]


def test_local_facts_of_a_program_that_breaks_tells_its_last_words(programs: Path, spec: JobSpec) -> None:
    write(programs, "stage_worker", "import no_such_module_anywhere")
    (problem,) = problems_of(spec)
    assert problem == (
        "model: `stage_worker facts` ended with exit code 1: "
        "ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    )


def test_local_facts_of_a_program_that_prints_something_else_is_refused(programs: Path, spec: JobSpec) -> None:
    write(programs, "dataloader_svc", "print('hello')")
    (problem,) = problems_of(spec)
    assert problem.startswith("data: `dataloader_svc facts` did not print facts: ")


def test_local_facts_of_a_program_that_hangs_ends_it_at_the_limit(programs: Path, spec: JobSpec) -> None:
    write(
        programs,
        "stage_worker",
        """
        import os, pathlib, signal
        pathlib.Path("pid").write_text(str(os.getpid()))
        signal.pause()
        """,
    )
    assert problems_of(spec, time_limit_seconds=3) == ["model: `stage_worker facts` took longer than 3 s and was ended"]
    pid = (programs / "pid").read_text()
    assert not Path(f"/proc/{pid}").exists()


def test_local_facts_interrupted_while_it_starts_ends_what_it_has_started(
    programs: Path, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(programs, "stage_worker", "import time\ntime.sleep(60)")
    submit, asked = ThreadPoolExecutor.submit, []

    def interrupted(pool: ThreadPoolExecutor, *arguments: Any) -> Any:
        asked.append(submit(pool, *arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        local_facts(spec, time_limit_seconds=20)
    assert time.monotonic() - began < 15
    assert [answer.done() for answer in asked] == [True]


def test_local_facts_with_parts_asks_the_model_for_those_that_the_data_need(programs: Path, spec: JobSpec) -> None:
    answer = """
        import json, sys
        document = json.load(sys.stdin)
        assert document["model"]
        assert document["needs"] == {"num_labels": 2, "vocabulary_size": 96, "pad_token_id": 0}, document
        size = {"fixed": 1, "fixed_linear": 2, "fixed_quadratic": 3, "row": 4, "row_linear": 5, "row_quadratic": 6}
        part = {"parameters": "7", "tensors": 8, "forward_operations": size, "activation_bytes": size}
        parts = {"embeddings": part, "shared": [{"parameters": "9", "tensors": 1, "blocks": [0, 5]}]}
        print(json.dumps({"model_type": "bert", "parts": parts}))
        """
    write(programs, "stage_worker", answer)
    model, _ = local_facts(spec, with_parts=True, time_limit_seconds=20)
    assert model.parts is not None
    assert model.parts.embeddings.parameters == 7
    # 1 + 2 x 10 + 3 x 100, and twice 4 + 5 x 10 + 6 x 100
    assert model.parts.embeddings.activation_bytes.at(rows=2, width=10) == 321 + 2 * 654
    assert model.parts.embeddings.activation_bytes.at(rows=0, width=10) == 0
    assert [(each.parameters, each.uses_of(range(3))) for each in model.parts.shared] == [(9, 1)]
    assert ModelFacts.of(model.message()) == model


def test_local_facts_with_parts_of_data_that_are_refused_still_tells_what_is_wrong_with_the_model(
    programs: Path, spec: JobSpec
) -> None:
    write(
        programs,
        "stage_worker",
        "import json, sys; sys.exit(f'error: asked with needs: {\"needs\" in json.load(sys.stdin)}')",
    )
    write(programs, "dataloader_svc", "import sys; sys.exit('error: no split')")
    with pytest.raises(SpecError) as caught:
        local_facts(spec, with_parts=True, time_limit_seconds=20)
    assert [str(problem) for problem in caught.value.problems] == ["model: asked with needs: False", "data: no split"]


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [({}, False), ({"limits": {"device_memory_bytes": "1GiB"}}, True), ({"schedule": {"name": "auto"}}, True)],
    ids=str,
)
def test_parts_are_wanted_where_a_job_is_planned_by_them(sections: dict[str, Any], wanted: bool) -> None:
    config = {"model_type": "bert"}
    assert (
        wants_parts(parse_spec({"name": "a", "model": {"config": config}, "data": {"task": "demo"}, **sections}))
        is wanted
    )


def test_local_facts_asks_both_programs_at_once(programs: Path, spec: JobSpec) -> None:
    meet = """
        import pathlib, time
        pathlib.Path("here-{me}").touch()
        while not pathlib.Path("here-{other}").exists():
            time.sleep(0.01)
        """
    write(programs, "stage_worker", textwrap.dedent(meet.format(me="model", other="data")) + GOOD_MODEL)
    write(programs, "dataloader_svc", textwrap.dedent(meet.format(me="data", other="model")) + GOOD_DATA)
    start = time.monotonic()
    local_facts(spec, time_limit_seconds=20)
    assert time.monotonic() - start < 20


def test_data_facts_of_a_message_have_all_its_fields() -> None:
    message = data_pb2.DataFacts(
        splits=[data_pb2.Split(name="test", rows=5, labelled=False, steps=1)],
        labels=["no", "yes"],
        num_labels=2,
        vocabulary_size=7,
        pad_token_id=3,
        steps_per_epoch=4,
        total_steps=12,
    )
    assert DataFacts.of(message) == DataFacts(
        splits=(Split(name="test", num_rows=5, labelled=False, num_steps=1),),
        labels=("no", "yes"),
        num_labels=2,
        vocabulary_size=7,
        pad_token_id=3,
        steps_per_epoch=4,
        total_steps=12,
    )


def test_facts_survive_their_messages() -> None:
    model = ModelFacts(
        model_type="bert",
        num_layers=6,
        hidden_size=384,
        max_positions=512,
        vocabulary_size=30522,
        token_types=2,
        labels=("no", "yes"),
        pad_token_ids=(0, 1),
    )
    data = DataFacts(
        splits=(Split(name="train", num_rows=5, labelled=True, num_steps=1, num_malformed=2, digest="5a"),),
        labels=("no", "yes"),
        num_labels=2,
        vocabulary_size=7,
        pad_token_id=3,
        steps_per_epoch=4,
        total_steps=12,
    )
    assert ModelFacts.of(model.message()) == model
    assert DataFacts.of(data.message()) == data
