"""Predicted bytes of each worker against those that the real engine holds, counted from outside while it runs."""

import functools
from typing import Any

import pytest

from benchmarks.local_case import LocalCase, LocalStep, layers_of
from coordinator.memory import WorkerMemory, predict_memory
from coordinator.partition import explicit_partition
from coordinator.parts import ModelParts
from coordinator.spec import JobSpec, parse_spec
from stage_worker.engine.precision import ComputeType
from stage_worker.facts import needs_of, parts_of
from stage_worker.models.objective import Objective
from tests.integration.parity.measured_memory import Measured, measuring
from tests.integration.parity.models import MODELS
from tests.unit.joined_workers import run_joined

pytestmark = pytest.mark.timeout(60)

NUM_LAYERS, HIDDEN_SIZE = 4, 16
WIDTH = 24
LENGTHS = (WIDTH, 7, 16)
"""Of the rows of a microbatch; they pad, as rows of real text do."""
NUM_MICROBATCHES = 5


@functools.cache
def parts(model: str, precision: str, attention: str, dropout: float) -> ModelParts:
    section = {"config": MODELS[model].config(dropout=dropout), "attention": attention}
    objective = Objective(MODELS[model].objective)
    needs = needs_of(2 if objective is Objective.CLASSIFICATION else 0, 50, 0)
    return ModelParts.of(parts_of(section, needs, objective, compute=ComputeType(precision)))


def spec_of(case: LocalCase) -> JobSpec:
    """Return the job of a case, as far as its memory goes."""
    return parse_spec(
        {
            "name": "a",
            "model": {"config": case.model},
            "data": {"task": "demo", "max_length": WIDTH},
            "train": {
                "global_batch_size": len(case.steps[0].lengths),
                "recompute": case.recompute,
                "objective": case.objective,
                "precision": case.precision,
                "optimizer": case.optimizer,
                "frozen_layers": case.frozen_layers,
            },
            "parallel": {"pp": case.pp},
            "schedule": {
                "name": case.schedule,
                "num_chunks": case.num_chunks,
                "num_microbatches": case.num_microbatches,
            },
        }
    )


def compare(
    monkeypatch: pytest.MonkeyPatch, *, model: str = "bert", dropout: float = 0.0, **values: Any
) -> list[tuple[WorkerMemory, Measured]]:
    """Return what is predicted of each worker, and what is measured."""
    case = LocalCase(
        **{"pp": 2, "num_microbatches": NUM_MICROBATCHES} | values,
        model=MODELS[model].config(dropout=dropout),
        objective=MODELS[model].objective,
        steps=(LocalStep(LENGTHS * NUM_MICROBATCHES),),
    )
    with measuring(monkeypatch) as found:
        outcomes = run_joined(case)
    assert [outcome.error for outcome in outcomes] == [None] * case.pp
    plan = case.train_plan()
    predicted = predict_memory(
        spec_of(case),
        parts(model, case.precision, case.attention, dropout),
        hidden_size=HIDDEN_SIZE,
        partition=explicit_partition(layers_of(plan, num_layers=NUM_LAYERS), num_layers=NUM_LAYERS),
        plan=plan,
    )
    return [(one, found[id(outcome.model.model)]) for one, outcome in zip(predicted, outcomes, strict=True)]


def check(pairs: list[tuple[WorkerMemory, Measured]], *, most: float = 1.002) -> None:
    for predicted, measured in pairs:
        assert measured.activations <= predicted.activations <= measured.activations * most
        assert predicted.parameters == measured.parameters
        assert predicted.gradients == measured.gradients
        assert predicted.optimizer == measured.optimizer


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("schedule", "num_chunks"), [("1f1b", 1), ("gpipe", 1), ("zbv", 2)])
@pytest.mark.parametrize("model", ["bert", "gpt2", "llama"])
def test_predicted_bytes_are_those_that_the_engine_holds(
    model: str, schedule: str, num_chunks: int, recompute: str, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(compare(monkeypatch, model=model, schedule=schedule, num_chunks=num_chunks, recompute=recompute))


@pytest.mark.parametrize(
    "values",
    [
        {"schedule": "zbh1", "recompute": 1},
        {"schedule": "zbv", "num_chunks": 2, "recompute": 1, "model": "llama"},
        {"schedule": "interleaved", "num_chunks": 2, "recompute": "except_last", "num_microbatches": 4},
        {"schedule": "gpipe", "recompute": (2, 0)},
        {"attention": "eager", "dropout": 0.1, "model": "gpt2"},
        {"dropout": 0.1, "optimizer": "sgd"},
        {"schedule": "zbv", "num_chunks": 2, "model": "albert"},
        {"model": "albert-2-groups"},
        {"model": "bert-masked_lm"},
        {"schedule": "zbv", "num_chunks": 2, "model": "gpt2-causal_lm"},
        {"frozen_layers": 1},
        {"pp": 1, "precision": "bf16"},
    ],
    ids=str,
)
def test_predicted_bytes_hold_for_jobs_of_every_kind(
    values: dict[str, Any], *, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(compare(monkeypatch, **values))


def test_predicted_activations_of_a_head_that_is_frozen_with_a_table_are_a_little_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a head need not keep its input. The weight itself is trained nowhere."""
    check(compare(monkeypatch, model="gpt2-causal_lm", frozen_layers=2), most=1.05)
