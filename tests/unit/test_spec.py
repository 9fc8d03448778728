"""The job spec: defaults, resolution, round trip, schema."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.problem import SpecError
from coordinator.rules import microbatches_of
from coordinator.spec import JobSpec, digest, from_json, json_schema, parse_spec, to_json

DEMO = {"name": "demo", "model": {"config": {"model_type": "bert"}}, "data": {"task": "demo"}}
SST2 = {"name": "sst2", "model": {"pretrained": "/models/bert"}, "data": {"task": "sst2", "source": "/glue"}}


def _with(document: Mapping[str, object], **sections: object) -> JobSpec:
    return parse_spec({**document, **sections})


def test_spec_of_required_keys_alone_has_the_defaults_of_the_contract() -> None:
    assert json.loads(to_json(parse_spec(SST2))) == {
        "name": "sst2",
        "model": {"pretrained": "/models/bert", "config": None, "attention": "sdpa"},
        "data": {
            "task": "sst2",
            "source": "/glue",
            "tokenizer": "/models/bert",
            "max_length": 128,
            "padding": "longest",
            "microbatching": "in_order",
            "shuffle": True,
            "drop_last": False,
            "max_train_rows": None,
            "malformed_lines": "refuse",
            "record_rows": False,
        },
        "parallel": {
            "pp": 2,
            "dp": 1,
            "tp": 1,
            "zero_stage": 0,
            "partition": "even",
            "layers_per_stage": None,
            "costs": None,
        },
        "schedule": {
            "name": "1f1b",
            "warmup": None,
            "num_chunks": 1,
            "group_size": None,
            "num_microbatches": 8,
            "microbatch_size": None,
            "file": None,
        },
        "train": {
            "epochs": 3,
            "max_steps": None,
            "global_batch_size": 32,
            "gradient_accumulation_steps": 1,
            "optimizer": "adamw",
            "learning_rate": 2.4e-5,
            "weight_decay": 0.01,
            "warmup_fraction": 0.1,
            "lr_schedule": "linear",
            "max_grad_norm": 0,
            "frozen_layers": None,
            "precision": "fp32",
            "boundary_dtype": "compute",
            "loss_scale": {
                "initial": 65536,
                "growth_factor": 2,
                "backoff_factor": 0.5,
                "growth_interval": 1000,
                "min": 1,
                "max": 4294967296,
            },
            "recompute": "none",
            "objective": "classification",
            "mlm_probability": 0.15,
            "seed": 42,
        },
        "eval": {"every_steps": None, "batch_size": 64, "at_end": True},
        "checkpoint": {"every_steps": None, "keep": 2, "resume": "auto", "from": None, "snapshot_steps": None},
        "predict": {"split": None},
        "limits": {"max_restarts": 3, "step_timeout_seconds": 300, "lease_seconds": 10, "device_memory_bytes": None},
    }


def test_spec_with_max_steps_has_no_epochs() -> None:
    train = _with(DEMO, train={"max_steps": 20}).train
    assert (train.epochs, train.max_steps) == (None, 20)


def test_spec_with_both_durations_null_trains_for_the_default_epochs() -> None:
    train = _with(DEMO, train={"epochs": None, "max_steps": None}).train
    assert (train.epochs, train.max_steps) == (3, None)


def test_spec_for_demo_has_no_tokenizer_even_beside_a_pretrained_model() -> None:
    assert _with(DEMO, model={"pretrained": "/models/bert"}).data.tokenizer is None


def test_spec_with_a_tokenizer_keeps_it_beside_a_pretrained_model() -> None:
    spec = _with(SST2, data={"task": "mrpc", "source": "/glue", "tokenizer": "/tokens"})
    assert spec.data.tokenizer == "/tokens"


@pytest.mark.parametrize(
    ("batch", "dp", "slices", "size", "expected"),
    [(32, 1, 1, 4, 8), (32, 2, 2, 4, 2), (33, 1, 1, 4, 9), (10, 3, 1, 3, 2), (32, 1, 1, 100, 1)],
)
def test_spec_with_a_microbatch_size_counts_the_microbatches_that_hold_the_rows(
    batch: int, dp: int, slices: int, size: int, expected: int
) -> None:
    spec = _with(
        DEMO,
        parallel={"dp": dp},
        train={"global_batch_size": batch, "gradient_accumulation_steps": slices},
        schedule={"microbatch_size": size},
    )
    assert spec.schedule.num_microbatches is None
    assert microbatches_of(spec) == expected


def test_spec_with_both_microbatch_keys_is_taken_where_they_agree() -> None:
    schedule = _with(DEMO, schedule={"microbatch_size": 4, "num_microbatches": 8}).schedule
    assert (schedule.microbatch_size, schedule.num_microbatches) == (4, 8)


def test_spec_with_an_integer_where_a_number_is_wanted_is_taken() -> None:
    assert _with(DEMO, train={"learning_rate": 1}).train.learning_rate == 1.0


def test_spec_with_equal_content_in_another_order_has_an_equal_digest() -> None:
    one = _with(DEMO, model={"config": {"model_type": "bert", "hidden_size": 8, "extra": {"a": 1, "b": 2}}})
    other = parse_spec(
        {
            "data": {"task": "demo"},
            "train": {"learning_rate": 2.4e-5, "epochs": 3},
            "model": {"config": {"extra": {"b": 2, "a": 1}, "hidden_size": 8, "model_type": "bert"}},
            "name": "demo",
        }
    )
    assert to_json(one) == to_json(other)
    assert digest(one) == digest(other)


def test_spec_with_another_seed_has_another_digest() -> None:
    assert digest(_with(DEMO, train={"seed": 1})) != digest(_with(DEMO, train={"seed": 2}))


def test_spec_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse_spec(DEMO).train.seed = 1


FINITE = st.floats(min_value=0, max_value=1e30, allow_nan=False)
CONFIG_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=8,
)


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    """Specs that are valid by construction, over every section."""
    dp, slices = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    num_microbatches = draw(st.integers(1, 6))
    batch = dp * slices * num_microbatches * draw(st.integers(1, 4))
    duration = draw(st.sampled_from(["epochs", "max_steps"]))
    config = {**draw(st.dictionaries(st.text(max_size=5), CONFIG_VALUES, max_size=3)), "model_type": "bert"}
    return parse_spec(
        {
            "name": draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True)),
            "model": {"config": config, "attention": draw(st.sampled_from(["sdpa", "eager"]))},
            "data": {
                "task": "demo",
                "max_length": draw(st.integers(1, 512)),
                "padding": draw(st.sampled_from(["longest", "max_length"])),
                "shuffle": draw(st.booleans()),
                "max_train_rows": draw(st.none() | st.integers(1, 10**6)),
            },
            "parallel": {"pp": draw(st.integers(1, 8)), "dp": dp},
            "schedule": {
                "name": draw(st.sampled_from(["naive", "gpipe", "1f1b", "zbh1", "zbh2", "looped_bfs"])),
                draw(st.sampled_from(["num_microbatches", "microbatch_size"])): num_microbatches,
            },
            "train": {
                duration: draw(st.integers(1, 10**6)),
                "global_batch_size": batch,
                "gradient_accumulation_steps": slices,
                "learning_rate": draw(FINITE | st.integers(0, 10)),
                "weight_decay": draw(FINITE),
                "recompute": draw(st.sampled_from(["none", "full", "except_last"]) | st.integers(0, 100)),
                "frozen_layers": draw(st.none() | st.integers(0, 100)),
                "precision": draw(st.sampled_from(["fp32", "bf16", "fp16"])),
                "objective": draw(st.sampled_from(["classification", "masked_lm", "causal_lm"])),
                "seed": draw(st.integers(0, 2**63 - 1)),
            },
            "eval": {"every_steps": draw(st.none() | st.integers(1, 100)), "at_end": draw(st.booleans())},
            "limits": {"lease_seconds": draw(st.floats(1, 1e6)), "max_restarts": draw(st.integers(0, 100))},
        }
    )


@given(specs())
@settings(deadline=None)
def test_spec_written_and_read_again_is_equal(spec: JobSpec) -> None:
    text = to_json(spec)
    assert from_json(text) == spec
    assert to_json(from_json(text)) == text


def test_schema_tells_of_every_key_what_it_means_and_its_default() -> None:
    schema = json_schema()
    sections = {"job": schema, **schema["$defs"]}
    keys = [
        (f"{name}.{key}", key in section.get("required", ()), node)
        for name, section in sections.items()
        for key, node in section.get("properties", {}).items()
    ]
    assert len(keys) > 60
    for key, required, node in keys:
        described = {**schema["$defs"].get(node.get("$ref", "").rpartition("/")[2], {}), **node}
        assert described.get("description"), f"{key} has no description"
        assert required or "default" in node, f"{key} is neither required nor has a default"


def test_schema_requires_name_model_and_task_only() -> None:
    schema = json_schema()
    required = {name: section["required"] for name, section in schema["$defs"].items() if "required" in section}
    assert schema["required"] == ["name", "model", "data"]
    assert required == {"DataSection": ["task"]}


def test_from_json_of_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(SpecError, match="the job is not JSON"):
        from_json("{")


def test_from_json_of_a_text_above_the_size_limit_is_refused() -> None:
    with pytest.raises(SpecError, match=r"33554433 bytes, at most 33554432"):
        from_json('"' + "x" * (2**25 - 1) + '"')


@pytest.mark.parametrize("depth", [40, 100_000])
def test_from_json_of_deep_nesting_is_refused(depth: int) -> None:
    with pytest.raises(SpecError, match="nested too deep, at most 32 levels"):
        from_json('{"name": ' + "[" * depth + "]" * depth + "}")


def test_from_json_with_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(SpecError, match="not Unicode"):
        from_json('{"name": "\\ud800"}')
