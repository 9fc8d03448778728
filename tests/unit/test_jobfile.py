"""Job files: overrides, paths, and where a problem is."""

import os
import textwrap
from pathlib import Path

import pytest

from coordinator.jobfile import load_job
from coordinator.problem import SpecError

DEMO = """\
name: demo
model:
  config: {model_type: bert, num_hidden_layers: 4}
data:
  task: demo
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A good job file, alone in a folder."""
    path = tmp_path / "job.yaml"
    path.write_text(DEMO)
    return path


def problems_of(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_job(path, overrides)
    return [str(problem) for problem in caught.value.problems]


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + textwrap.dedent(text))


def test_job_file_is_read_with_its_values(job: Path) -> None:
    append(job, "train: {learning_rate: 1e-5, seed: 010}\n")
    spec = load_job(job)
    assert (spec.name, spec.train.learning_rate, spec.train.seed) == ("demo", 0.00001, 10)
    assert spec.model.config == {"model_type": "bert", "num_hidden_layers": 4}


def test_job_file_with_a_byte_order_mark_is_read(job: Path) -> None:
    job.write_bytes(b"\xef\xbb\xbf" + job.read_bytes())
    assert load_job(job).name == "demo"


def test_job_file_with_problems_tells_file_and_line_of_each(job: Path) -> None:
    append(
        job,
        """\
        parallel:
          pp: '8'
        train:
          learning_rate: 1e-5
          epoch: 3
        """,
    )
    assert problems_of(job) == [
        f"{job}:7: parallel.pp: is '8' (text), needs an integer from 1 to 4096",
        f"{job}:10: train.epoch: is no key of the job file; the nearest is train.epochs",
    ]


def test_job_file_that_lacks_a_key_tells_the_file_or_the_section(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: {config: {model_type: bert}}\ndata:\n  max_length: 8\n")
    assert [problem.split(" is missing")[0] for problem in problems_of(path)] == [
        f"{path}: name:",
        f"{path}:2: data.task:",
    ]


def test_job_file_with_a_rule_broken_by_a_default_tells_the_section(job: Path) -> None:
    append(job, "train:\n  global_batch_size: 4\n")
    (problem,) = problems_of(job)
    assert problem.startswith(f"{job}: schedule.num_microbatches: is 8, but")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty, needs the keys name, model and data"),
        (b"# nothing\n", "is empty, needs the keys name, model and data"),
        (b"- a\n", "is not a mapping, needs the keys name, model and data"),
        (b"just text", "is not a mapping, needs the keys name, model and data"),
        (b"\xff\xfe\x00", "is not UTF-8 text: invalid start byte"),
        (b"#" * (2**20 + 1), "has more than 1048576 bytes, is no job file"),
    ],
)
def test_job_file_that_is_none_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    assert problems_of(path) == [f"{path}: {message}"]


def test_job_file_of_the_largest_size_is_read(job: Path) -> None:
    job.write_bytes(job.read_bytes().ljust(2**20, b"#"))
    assert load_job(job).name == "demo"


def test_job_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert problems_of(tmp_path / "no.yaml") == [f"{tmp_path / 'no.yaml'}: there is no such job file"]


def test_job_file_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    assert problems_of(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("train.learning_rate=5e-5", ("train", "learning_rate"), 5e-5),
        ("parallel.pp=4", ("parallel", "pp"), 4),
        ("eval.at_end=false", ("eval", "at_end"), False),
        ("name=other", ("name",), "other"),
        ("data.max_train_rows=", ("data", "max_train_rows"), None),
        ("limits={max_restarts: 0}", ("limits", "max_restarts"), 0),
        (
            "model.config.hidden_size=32",
            ("model", "config"),
            {"model_type": "bert", "num_hidden_layers": 4, "hidden_size": 32},
        ),
    ],
)
def test_override_sets_its_key(job: Path, override: str, key: tuple[str, ...], value: object) -> None:
    found: object = load_job(job, [override])
    for part in key:
        found = getattr(found, part)
    assert found == value


def test_override_that_comes_last_counts(job: Path) -> None:
    assert load_job(job, ["train.seed=1", "train.seed=2"]).train.seed == 2


def test_override_replaces_the_file_s_value_and_leaves_its_neighbours(job: Path) -> None:
    append(job, "train: {seed: 1, epochs: 2}\n")
    train = load_job(job, ["train.seed=5"]).train
    assert (train.seed, train.epochs) == (5, 2)


def test_override_to_null_takes_a_key_away(job: Path) -> None:
    append(job, "train: {epochs: 2}\n")
    assert load_job(job, ["train.epochs=null", "train.max_steps=7"]).train.max_steps == 7


def test_override_of_max_steps_takes_the_place_of_the_files_epochs(job: Path) -> None:
    append(job, "train: {epochs: 2}\n")
    train = load_job(job, ["train.max_steps=7"]).train
    assert (train.max_steps, train.epochs) == (7, None)


def test_override_of_pretrained_takes_the_place_of_the_files_config(job: Path, tmp_path: Path) -> None:
    model = load_job(job, [f"model.pretrained={tmp_path}"]).model
    assert (model.pretrained, model.config) == (str(tmp_path.resolve()), None)


def test_override_with_null_leaves_the_alternative_in_the_file(job: Path) -> None:
    append(job, "train: {max_steps: 2}\n")
    assert load_job(job, ["train.epochs=null"]).train.max_steps == 2


def test_overrides_of_both_alternatives_are_refused(job: Path) -> None:
    assert len(problems_of(job, "train.max_steps=7", "train.epochs=2")) == 1


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("train.seed", "--set train.seed: is no override, needs key.path=value"),
        ("=5", "--set =5: is no override, needs key.path=value"),
        ("train..seed=5", "--set train..seed=5: is no override, needs key.path=value"),
        ("name.first=5", "--set name.first=5: name: is a value, it has no keys below it"),
        ("parallel.pp='8'", "--set parallel.pp: parallel.pp: is '8' (text), needs an integer from 1 to 4096"),
        ("a.b.c=1", "--set a.b.c: a: is no key of the job file; the nearest is name"),
        ("train.epoch=1", "--set train.epoch: train.epoch: is no key of the job file; the nearest is train.epochs"),
        ("eval={at_end: 3}", "--set eval: eval.at_end: is 3, needs true or false"),
        ("train.seed=!!python/name:os.system", "--set train.seed=!!python/name:os.system: train.seed: the value tag"),
    ],
)
def test_override_that_is_bad_is_refused_and_named(job: Path, override: str, problem: str) -> None:
    (found,) = problems_of(job, override)
    assert found.startswith(problem)


def sst2(folder: Path, *, pretrained: str, source: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(f"name: a\nmodel: {{pretrained: {pretrained}}}\ndata: {{task: sst2, source: {source}}}\n")
    return path


def test_relative_path_in_a_job_file_is_taken_from_the_file_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "bert").mkdir()
    path = sst2(tmp_path / "jobs", pretrained="bert", source="../glue")
    monkeypatch.chdir(tmp_path)
    spec = load_job(Path("jobs/job.yaml"))
    assert spec.model.pretrained == str(tmp_path / "jobs" / "bert")
    assert spec.data.source == str(tmp_path / "glue")
    assert spec.data.tokenizer == spec.model.pretrained
    assert path.is_file()


def test_relative_path_in_an_override_is_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "here").mkdir()
    path = sst2(tmp_path / "jobs", pretrained="/bert", source="/glue")
    monkeypatch.chdir(tmp_path / "here")
    spec = load_job(path, ["data.source=./glue", "model={pretrained: ./bert}"])
    assert spec.data.source == str(tmp_path / "here" / "glue")
    assert spec.model.pretrained == str(tmp_path / "here" / "bert")


def test_path_that_begins_with_a_tilde_is_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    spec = load_job(sst2(tmp_path, pretrained="~/bert", source="/glue"))
    assert spec.model.pretrained == str(tmp_path / "home" / "bert")


def test_path_through_a_link_is_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "link")
    assert load_job(sst2(tmp_path, pretrained="./link", source="/glue")).model.pretrained == str(tmp_path / "real")


def test_hub_id_stays_what_it_is_and_is_refused(tmp_path: Path) -> None:
    path = sst2(tmp_path, pretrained="org/model", source="hub")
    assert [problem.partition(", ")[0] for problem in problems_of(path)] == [
        f"{path}:2: model.pretrained: is 'org/model'"
    ]


def test_source_hub_is_no_folder_even_beside_one_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    assert load_job(sst2(tmp_path, pretrained="/bert", source="hub")).data.source == "hub"


@pytest.mark.parametrize("name", ["empty: ''", 'zero: "a\\0b"', f"long: {'x' * 300}"])
def test_path_that_no_file_system_takes_is_refused(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(sst2(tmp_path, pretrained=name.partition(": ")[2], source="/glue"))
    assert problem.startswith(f"{tmp_path}/job.yaml:2: model.pretrained: is ")


JOBS = Path(__file__).parents[2] / "deploy" / "jobs"


def test_demo_job_needs_no_override() -> None:
    assert load_job(JOBS / "demo.yaml").data.task == "demo"


@pytest.mark.parametrize(
    ("file", "task"),
    [("sst2-minilm.yaml", "sst2"), ("mrpc-minilm.yaml", "mrpc"), ("sst2-minilm-zbv.yaml", "sst2")],
)
def test_example_job_is_pointed_at_its_folders_by_overrides(file: str, task: str) -> None:
    spec = load_job(JOBS / file, ["model.pretrained=/models/minilm", "data.source=/glue"])
    assert (spec.data.task, spec.data.source) == (task, "/glue")
    assert spec.model.pretrained == spec.data.tokenizer == "/models/minilm"
