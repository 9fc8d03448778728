"""The runs in which costs are measured: real jobs, whose plans are proved like any other."""

from collections import Counter

import pytest

from coordinator.facts import ModelFacts
from coordinator.layout import train_plan
from coordinator.profile_runs import NUM_STEPS, ProfileRun, profile_runs
from coordinator.schedule.actions import Op
from coordinator.spec import JobSpec, parse_spec


def job(**changes: object) -> JobSpec:
    document: dict[str, dict[str, object]] = {
        "model": {"config": {"model_type": "bert", "num_hidden_layers": 6}},
        "data": {"task": "demo", "microbatching": "length_balanced"},
        "parallel": {"pp": 2},
        "schedule": {"name": "gpipe", "num_microbatches": 8},
        "train": {"global_batch_size": 32, "recompute": "full"},
        "eval": {"every_steps": 5},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        document[section][name] = value
    return parse_spec({"name": "job", **document})


def runs_of(spec: JobSpec, *, num_layers: int = 6) -> tuple[ProfileRun, ...]:
    model = ModelFacts(
        model_type="bert",
        num_layers=num_layers,
        hidden_size=8,
        max_positions=64,
        vocabulary_size=0,
        token_types=2,
        labels=(),
    )
    return profile_runs(spec, model)


def test_runs_have_the_jobs_microbatches_and_between_them_smaller_ones() -> None:
    runs = runs_of(job(schedule__name="interleaved", schedule__num_chunks=2))
    assert [(run.rows, run.layers) for run in runs] == [(rows, (3, 3)) for rows in (4, 4, 2, 2, 4, 4)]
    for run in runs:
        spec = run.spec
        assert spec.train.global_batch_size == run.rows * 8
        assert (spec.train.max_steps, spec.train.epochs) == (NUM_STEPS, None)
        assert spec.parallel.layers_per_stage == run.layers
        assert (spec.train.recompute, spec.eval.at_end, spec.eval.every_steps) == ("none", False, None)


@pytest.mark.parametrize(("pp", "microbatches"), [(1, 1), (1, 8), (2, 2), (3, 8), (6, 4)])
def test_runs_do_whole_backwards_or_both_halves_on_every_stage(pp: int, microbatches: int) -> None:
    spec = job(parallel__pp=pp, schedule__num_microbatches=microbatches, train__global_batch_size=microbatches)
    kinds = []
    for run in runs_of(spec):
        orders = train_plan(run.spec).orders
        counts = [Counter(action.op for action in order) for order in orders]
        kinds.append(all(count[Op.INPUT_GRADIENT] == count[Op.WEIGHT_GRADIENT] >= 2 for count in counts))
        assert kinds[-1] or not any(count[Op.INPUT_GRADIENT] for count in counts)
        assert all(count[Op.FORWARD] == count[Op.BACKWARD] + count[Op.INPUT_GRADIENT] >= 2 for count in counts)
    # A machine that slows down evenly makes no kind look cheaper: each has the same mean place.
    assert kinds == [False, True, True, False, True, False]


def test_accumulation_and_replicas_leave_the_jobs_own_rows() -> None:
    spec = job(parallel__dp=2, train__global_batch_size=48, train__gradient_accumulation_steps=3)
    run, *_ = runs_of(spec)
    assert run.rows == 1
    assert run.spec.train.global_batch_size == 2 * 8
    assert run.spec.train.gradient_accumulation_steps == 1


def test_one_row_has_two_beside_it() -> None:
    runs = runs_of(job(train__global_batch_size=8, parallel__pp=3), num_layers=3)
    assert [(run.rows, run.layers) for run in runs] == [(rows, (1, 1, 1)) for rows in (1, 1, 2, 2, 1, 1)]
