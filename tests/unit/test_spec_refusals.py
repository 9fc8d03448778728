"""Every refusal of the job spec, by key and message."""

import copy
from collections.abc import Mapping

import pytest

from coordinator.problem import SpecError
from coordinator.spec import parse_spec

GOOD: Mapping[str, dict[str, object]] = {
    "model": {"config": {"model_type": "bert"}},
    "data": {"task": "demo"},
    "parallel": {},
    "schedule": {},
    "train": {},
    "eval": {},
    "checkpoint": {},
    "limits": {},
}


TASKS = "cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte, wnli, ax, demo"
UNBUILT_SCHEDULES = "pipedream pipedream_2bw"
BUILT_SCHEDULES = "naive, gpipe, 1f1b, interleaved, looped_bfs, zbh1, zbh2, zbv, dualpipev, custom, auto"


def problems(**changes: object) -> dict[str, str]:
    """Return key and message of each problem of a good job in which ``section__key`` is changed."""
    document: dict[str, object] = {"name": "job", **copy.deepcopy(dict(GOOD))}
    for path, value in changes.items():
        section, _, name = path.partition("__")
        if not name:
            document[section] = value
        else:
            target = document[section]
            assert isinstance(target, dict)
            target[name] = value
    try:
        parse_spec(document)
    except SpecError as error:
        return {problem.key: problem.message for problem in error.problems}
    return {}


def test_spec_that_the_refusals_start_from_is_good() -> None:
    assert problems() == {}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        # wrong types: the value as it was written, and what is taken
        ("parallel__pp", "8", "is '8' (text), needs an integer from 1 to 4096"),
        ("parallel__pp", True, "is true, needs an integer from 1 to 4096"),
        ("parallel__pp", 2.0, "is 2.0, needs an integer from 1 to 4096"),
        ("parallel__pp", None, "is null, needs an integer from 1 to 4096"),
        ("train__learning_rate", "1e-5", "is '1e-5' (text), needs a number of at least 0"),
        ("train__learning_rate", True, "is true, needs a number of at least 0"),
        ("train__learning_rate", [1e-5], "is [1e-05], needs a number of at least 0"),
        ("train__seed", "010", "is '010' (text), needs an integer from 0 to 9223372036854775807"),
        ("data__shuffle", "on", "is 'on' (text), needs true or false"),
        ("data__shuffle", 1, "is 1, needs true or false"),
        ("data__source", 5, "is 5, needs text of 1 to 4096 characters"),
        ("model__config", "bert", "is 'bert' (text), needs a mapping of keys, or null"),
        ("train", 5, "is 5, needs a mapping of keys"),
        ("eval", None, "is null, needs a mapping of keys"),
        ("parallel", ["pp"], 'is ["pp"], needs a mapping of keys'),
        # out of range
        ("parallel__pp", 0, "is 0, needs an integer from 1 to 4096"),
        ("parallel__dp", -1, "is -1, needs an integer from 1 to 4096"),
        ("data__max_length", 0, "is 0, needs an integer from 1 to 2147483647"),
        ("train__epochs", 0, "is 0, needs an integer from 1 to 2147483647, or null"),
        ("train__max_steps", 0, "is 0, needs an integer from 1 to 2147483647, or null"),
        ("train__global_batch_size", 0, "is 0, needs an integer from 1 to 16777216"),
        ("train__gradient_accumulation_steps", 0, "is 0, needs an integer from 1 to 65536"),
        ("train__learning_rate", -1e-5, "is -1e-05, needs a number of at least 0"),
        ("train__learning_rate", float("nan"), "is NaN, needs a finite number of at least 0"),
        ("train__learning_rate", float("inf"), "is Infinity, needs a finite number of at least 0"),
        ("train__warmup_fraction", 1, "is 1, needs a number of at least 0 and less than 1"),
        ("train__max_grad_norm", -1, "is -1, needs a number of at least 0"),
        ("train__mlm_probability", 2, "is 2, needs a number from 0 to 1"),
        ("train__frozen_layers", -1, "is -1, needs an integer from 0 to 2147483647, or null"),
        ("train__precision", "fp64", "is 'fp64', needs one of fp32, bf16, fp16"),
        ("train__objective", "mlm", "is 'mlm', needs one of classification, masked_lm, causal_lm"),
        ("train__seed", -1, "is -1, needs an integer from 0 to 9223372036854775807"),
        ("train__seed", 2**63, "is 9223372036854775808, needs an integer from 0 to 9223372036854775807"),
        ("schedule__num_microbatches", 0, "is 0, needs an integer from 1 to 65536, or null"),
        ("schedule__microbatch_size", 0, "is 0, needs an integer from 1 to 2147483647, or null"),
        ("schedule__num_chunks", 0, "is 0, needs an integer from 1 to 64"),
        ("schedule__num_chunks", 65, "is 65, needs an integer from 1 to 64"),
        ("schedule__group_size", 0, "is 0, needs an integer from 1 to 2147483647, or null"),
        (
            "schedule__warmup",
            "lazy",
            "is 'lazy', needs the value eager, or a list, each entry an integer from 0 to 2147483647, or null",
        ),
        ("eval__batch_size", 0, "is 0, needs an integer from 1 to 16777216"),
        ("checkpoint__keep", 0, "is 0, needs an integer from 1 to 2147483647"),
        ("limits__max_restarts", -1, "is -1, needs an integer from 0 to 2147483647"),
        ("limits__step_timeout_seconds", 0, "is 0, needs a number of more than 0"),
        ("limits__lease_seconds", 0.5, "is 0.5, needs a number of at least 1"),
        # closed sets: only what is built is offered
        ("data__padding", "short", "is 'short', needs one of longest, max_length"),
        ("data__task", "sst-2", f"is 'sst-2', needs one of {TASKS}"),
        ("train__optimizer", "adam", "is 'adam', needs one of adamw, sgd"),
        ("schedule__name", "1f2b", f"is '1f2b', needs one of {BUILT_SCHEDULES}"),
        ("checkpoint__resume", "never", "is 'never', needs the value auto"),
        # names
        ("name", "a/b", "is 'a/b', needs text that matches ^[A-Za-z0-9._-]{1,63}$"),
        ("name", "../x", "is '../x', needs text that matches ^[A-Za-z0-9._-]{1,63}$"),
        ("name", "", "is '', needs text that matches ^[A-Za-z0-9._-]{1,63}$"),
        ("name", "a\n", "is 'a\\n', needs text that matches ^[A-Za-z0-9._-]{1,63}$"),
        ("name", "ä", "is 'ä', needs text that matches ^[A-Za-z0-9._-]{1,63}$"),
        ("name", 7, "is 7, needs text that matches ^[A-Za-z0-9._-]{1,63}$"),
        ("name", "..", "is '..', which names a folder; needs a letter or a digit"),
    ],
)
def test_spec_with_a_bad_value_is_refused_by_key_value_and_what_is_taken(
    path: str, value: object, message: str
) -> None:
    assert problems(**{path: value}) == {path.replace("__", "."): message}


def test_spec_with_a_name_of_64_characters_is_refused_and_of_63_is_taken() -> None:
    assert list(problems(name="n" * 64)) == ["name"]
    assert problems(name="n" * 63) == {}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("parallel__tp", 2, "is 2, which this version has not built; built: 1"),
        ("parallel__zero_stage", 1, "is 1, which this version has not built; built: 0"),
        *(
            ("schedule__name", name, f'is "{name}", which this version has not built; built: {BUILT_SCHEDULES}')
            for name in UNBUILT_SCHEDULES.split()
        ),
        ("checkpoint__snapshot_steps", 5, "is 5, which this version has not built; built: null"),
    ],
)
def test_spec_that_asks_for_what_is_not_built_is_refused_with_what_is(path: str, value: object, message: str) -> None:
    assert problems(**{path: value}) == {path.replace("__", "."): message}


@pytest.mark.parametrize(
    "accepted",
    [
        {"train__gradient_accumulation_steps": 2},
        {"train__max_grad_norm": 1.0},
        {"train__boundary_dtype": "fp32"},
        {"train__loss_scale": {"initial": 1024}},
        {"train__optimizer": "sgd"},
        {"train__lr_schedule": "constant"},
        {"eval__every_steps": 10},
        {"limits__max_restarts": 0},
        {"model__attention": "eager"},
        {"data__record_rows": True},
        {"data__microbatching": "length_balanced"},
        {"data__malformed_lines": "skip"},
        {"parallel__pp": 1, "parallel__dp": 2},
        {"train__precision": "bf16"},
        {"train__precision": "fp16", "train__loss_scale": {"initial": 1, "min": 1, "max": 1}},
        {"train__recompute": "full"},
        {"train__recompute": "except_last"},
        {"train__recompute": 10**6},  # more layers than a stage has are all of them
        {"train__recompute": [0, 3]},
        {"train__recompute": [1, 0, 2, 3], "schedule__name": "zbv", "schedule__num_chunks": 2},
        {"train__objective": "causal_lm", "train__mlm_probability": 0},
        {"train__objective": "masked_lm", "train__mlm_probability": 1},
        {"train__mlm_probability": 0},
        {"train__frozen_layers": 0},
    ],
)
def test_spec_that_asks_for_what_is_built_is_taken(accepted: dict[str, object]) -> None:
    assert problems(**accepted) == {}


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        (
            {"model": {"pretrained": "/m", "config": {"model_type": "bert"}}},
            "model",
            "has both pretrained and config, needs one of them; set the other one to null",
        ),
        ({"model": {}}, "model", "has neither pretrained nor config, needs one of them"),
        (
            {"model": {"config": {"hidden_size": 8}}},
            "model.config",
            "has no model_type, needs one as text, for instance bert",
        ),
        (
            {"model": {"config": {"model_type": "bert", "deep": [{"x": float("nan")}]}}},
            "model.config",
            "has a number that is infinite or NaN, needs finite numbers",
        ),
        (
            {"model": {"pretrained": "bert-base-uncased"}},
            "model.pretrained",
            "is 'bert-base-uncased', which is no folder, and Hub ids are not built in this version; "
            "give the path of a folder",
        ),
        (
            {"model": {"pretrained": "/a\0b"}},
            "model.pretrained",
            "is '/a\\x00b', which has a control character; needs the path of a folder",
        ),
        (
            {"data": {"task": "sst2", "source": "glue", "tokenizer": "/t"}},
            "data.source",
            "is 'glue', which is no folder, and Hub ids are not built in this version; give the path of a folder",
        ),
        (
            {"data": {"task": "sst2", "source": "/glue", "tokenizer": "t"}},
            "data.tokenizer",
            "is 't', which is no folder, and Hub ids are not built in this version; give the path of a folder",
        ),
        (
            {"data": {"task": "sst2", "source": "/glue"}},
            "data.tokenizer",
            "is missing; a model built from model.config needs the folder of a tokenizer",
        ),
        (
            {"data__tokenizer": "/t"},
            "data.tokenizer",
            "is '/t', but demo has a tokenizer of its own; leave the key out",
        ),
        (
            {"train__epochs": 1, "train__max_steps": 20},
            "train.max_steps",
            "is 20, but train.epochs is 1 too, needs one of them; set the other one to null",
        ),
        (
            {"schedule__num_microbatches": 4, "schedule__microbatch_size": 4},
            "schedule.num_microbatches",
            "is 4, but microbatch_size 4 makes it 8; leave one of the two out",
        ),
        (
            {"schedule__num_microbatches": 33},
            "schedule.num_microbatches",
            "is 33, but a replica has only 32 rows in an accumulation slice "
            "(train.global_batch_size 32 / parallel.dp 1 / 1 slices); needs at most 32",
        ),
        (
            {"schedule__num_microbatches": 6, "parallel__dp": 3, "train__gradient_accumulation_steps": 2},
            "schedule.num_microbatches",
            "is 6, but a replica has only 5 rows in an accumulation slice "
            "(train.global_batch_size 32 / parallel.dp 3 / 2 slices); needs at most 5",
        ),
        (
            {"train__global_batch_size": 3, "parallel__dp": 2, "train__gradient_accumulation_steps": 2},
            "train.global_batch_size",
            "is 3, less than one row for each of 2 replicas x 2 accumulation slices; needs at least 4",
        ),
        (
            {"parallel__pp": 64, "schedule__num_microbatches": 2049, "train__global_batch_size": 2049},
            "schedule.num_microbatches",
            "is 2049, so that a step has 131136 forwards (64 stages x 1 slices x 2049); at most 131072 are planned",
        ),
        (
            {"predict": {"split": "test"}},
            "predict.split",
            "is test, but a model from scratch has learnt nothing; needs model.pretrained",
        ),
        (
            {
                "predict": {"split": "test"},
                "train__objective": "masked_lm",
                "model": {"pretrained": "/m"},
            },
            "predict.split",
            "is test, but train.objective is masked_lm; predictions are those of classification",
        ),
        (
            {"train__loss_scale": {"backoff_factor": 1}},
            "train.loss_scale.backoff_factor",
            "is 1, needs a number of more than 0 and less than 1",
        ),
        (
            {"train__loss_scale": {"initial": 1, "min": 2}},
            "train.loss_scale",
            "has min 2, initial 1, max 4.29497e+09; needs min <= initial <= max",
        ),
        (
            {"train__loss_scale": {"max": 1024}, "train__precision": "fp16"},
            "train.loss_scale",
            "has min 1, initial 65536, max 1024; needs min <= initial <= max",
        ),
        (
            {"train__recompute": [1, 2, 3]},
            "train.recompute",
            "has 3 numbers for 2 stages; give one number a stage",
        ),
        (
            {"train__recompute": [], "schedule__name": "zbv", "schedule__num_chunks": 2},
            "train.recompute",
            "has 0 numbers for 4 stages (2 workers x 2 chunks); give one number a stage",
        ),
        (
            {"train__objective": "masked_lm", "train__mlm_probability": 0},
            "train.mlm_probability",
            "is 0, but masked_lm learns from masked tokens only; needs a number of more than 0",
        ),
    ],
)
def test_spec_whose_keys_do_not_go_together_is_refused(changes: dict[str, object], key: str, message: str) -> None:
    assert problems(**changes) == {key: message}


@pytest.mark.parametrize("missing", ["name", "model", "data"])
def test_spec_without_a_required_key_is_refused(missing: str) -> None:
    document = {"name": "job", **GOOD}
    del document[missing]
    with pytest.raises(SpecError) as caught:
        parse_spec(document)
    assert [problem.key for problem in caught.value.problems] == [missing]
    assert caught.value.problems[0].message.startswith("is missing, needs ")


def test_spec_without_a_task_is_refused_with_the_tasks_there_are() -> None:
    assert problems(data={}) == {"data.task": f"is missing, needs one of {TASKS}"}


@pytest.mark.parametrize(
    ("document", "told"),
    [(None, "null"), ([], "[]"), ("name: x", "'name: x'"), (3, "3")],
    ids=["null", "list", "text", "number"],
)
def test_spec_that_is_no_mapping_is_refused(document: object, told: str) -> None:
    with pytest.raises(SpecError, match="needs a mapping with name, model and data") as caught:
        parse_spec(document)
    assert str(caught.value).startswith(f"the job is {told},")


def test_spec_with_many_problems_tells_them_all_in_the_order_of_the_file() -> None:
    found = problems(
        fp16="on",
        limits__lease_seconds="10",
        train={"batch_size": "8", "learning_rate": "1e-5", "precision": "half", "epochs": 1, "max_steps": 2},
        schedule__num_microbatches=64,
        parallel={"pp": 0, "tp": 2},
        data={"task": "sst2", "source": "glue", "tokenizer": "/t"},
        model={},
        name="a b",
    )
    assert list(found) == [
        "name",
        "model",
        "data.source",
        "parallel.pp",
        "parallel.tp",
        "schedule.num_microbatches",
        "train.batch_size",
        "train.max_steps",
        "train.learning_rate",
        "train.precision",
        "limits.lease_seconds",
        "fp16",
    ]


def test_spec_error_has_one_line_a_problem() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({"name": "a", "model": {"pretrained": "/m"}, "data": {"task": "demo"}, "eval": 1, "seed": 2})
    assert str(caught.value).splitlines() == [
        "eval: is 1, needs a mapping of keys",
        "seed: is no key of the job file; the nearest is train.seed",
    ]


@pytest.mark.parametrize(("value", "told"), [([1, "x", "y"], '[1, "x", "y"]'), ("x", "'x'"), (-1, "-1")])
def test_spec_with_a_value_that_none_of_several_types_takes_tells_of_the_key_once(value: object, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({"name": "a", **GOOD, "train": {"recompute": value}})
    assert [str(problem) for problem in caught.value.problems] == [
        f"train.recompute: is {told}, needs one of none, full, except_last, or an integer from 0 to 2147483647, "
        "or a list, each entry an integer from 0 to 2147483647",
    ]


def test_spec_with_a_bad_value_says_nothing_of_rules_that_read_it() -> None:
    assert list(problems(train__global_batch_size="4", schedule__num_microbatches=64)) == ["train.global_batch_size"]


def test_spec_with_a_very_long_value_quotes_its_beginning_only() -> None:
    (message,) = problems(data__padding="x" * 5000).values()
    assert len(message) < 150
