"""The bytes of each worker, of a model whose parts are round numbers."""

from typing import Any

import pytest

from coordinator.byte_size import bytes_of, shown
from coordinator.cli.memory_view import memory_record, memory_rows
from coordinator.memory import WorkerMemory, predict_memory
from coordinator.memory_limit import memory_problem
from coordinator.partition import even_partition
from coordinator.parts import MicrobatchSize, ModelPart, ModelParts, SharedParameters
from coordinator.problem import Problem
from coordinator.schedule.plan import Plan, make_plan
from coordinator.spec import JobSpec, parse_spec

LINEAR = MicrobatchSize(row_linear=1)
HIDDEN_SIZE = 2
PARTS = ModelParts(
    embeddings=ModelPart(parameters=1000, tensors=2, activation_bytes=MicrobatchSize(row_linear=100)),
    layer=ModelPart(parameters=100, tensors=3, activation_bytes=MicrobatchSize(row_linear=1000), waiting_bytes=LINEAR),
    head=ModelPart(parameters=10, tensors=1, activation_bytes=MicrobatchSize(fixed=4, row=10)),
    stage=ModelPart(activation_bytes=MicrobatchSize(fixed_linear=3, row_quadratic=1)),
)
WIDTH = 10
LAYER = 1000 * WIDTH
CONTEXT = 3 * WIDTH


def spec_of(**sections: dict[str, Any]) -> JobSpec:
    sections = {"train": {"global_batch_size": 4}, "schedule": {"num_microbatches": 4}} | sections
    data = {"task": "demo", "max_length": WIDTH}
    model = {"config": {"model_type": "bert"}}
    return parse_spec({"name": "a", "model": model, "data": data, **sections})


def plan_of(name: str, pp: int, num_microbatches: int, **options: int) -> Plan:
    return make_plan(name, num_workers=pp, num_microbatches=num_microbatches, **options)


def predict(spec: JobSpec, plan: Plan, *, parts: ModelParts = PARTS, num_layers: int = 4) -> tuple[WorkerMemory, ...]:
    partition = even_partition(num_layers=num_layers, num_stages=plan.placement.num_stages)
    return predict_memory(spec, parts, hidden_size=HIDDEN_SIZE, partition=partition, plan=plan)


def problem(spec: JobSpec, plan: Plan) -> Problem | None:
    partition = even_partition(num_layers=4, num_stages=plan.placement.num_stages)
    return memory_problem(spec, PARTS, hidden_size=HIDDEN_SIZE, partition=partition, plan=plan)


def test_memory_of_each_worker_is_that_of_its_stages() -> None:
    first, last = predict(spec_of(), plan_of("1f1b", 2, 4))
    assert (first.parameters, first.gradients) == (4 * 1200, 4 * 1200)
    assert (last.parameters, last.gradients) == (4 * 210, 4 * 210)
    assert (first.optimizer, last.optimizer) == (8 * 1200 + 4 * 8, 8 * 210 + 4 * 7)
    # one row a microbatch: two in flight on the first worker, one on the last
    stage = 2 * LAYER + CONTEXT + WIDTH**2
    assert (first.activations, last.activations) == (2 * (stage + 100 * WIDTH), stage + 4 + 10)
    assert first.total == first.parameters + first.gradients + first.optimizer + first.activations + first.borders


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"optimizer": "sgd"}, (4 * 1200, 4 * 1200, 0)),
        # A copy to compute with; the gradients of the microbatch at work beside the sums.
        ({"precision": "bf16"}, (6 * 1200, 6 * 1200, 8 * 1200 + 4 * 8)),
        ({"frozen_layers": 0}, (4 * 1200, 4 * 200, 8 * 200 + 4 * 6)),
        ({"frozen_layers": 1}, (4 * 1200, 4 * 100, 8 * 100 + 4 * 3)),
    ],
    ids=str,
)
def test_memory_of_weights_follows_how_they_are_trained(train: dict[str, Any], expected: tuple[int, int, int]) -> None:
    first, _ = predict(spec_of(train={"global_batch_size": 4, **train}), plan_of("1f1b", 2, 4))
    assert (first.parameters, first.gradients, first.optimizer) == expected


def test_memory_of_a_shared_weight_is_once_a_worker_with_a_gradient_for_each_use() -> None:
    tied = SharedParameters(parameters=5000, tensors=1, blocks=(0, 5))
    parts = ModelParts(**{name: ModelPart() for name in ("embeddings", "layer", "head", "stage")}, shared=(tied,))
    there = (20_000, 20_000, 40_004)
    apart = predict(spec_of(), plan_of("1f1b", 4, 4), parts=parts)
    assert [(each.parameters, each.gradients, each.optimizer) for each in apart] == [there, (0, 0, 0), (0, 0, 0), there]
    together = predict(spec_of(), plan_of("zbv", 2, 4, num_chunks=2), parts=parts)
    assert [(each.parameters, each.gradients, each.optimizer) for each in together] == [
        (20_000, 40_000, 40_004),
        (0, 0, 0),
    ]


def test_memory_of_layers_that_share_their_weights_has_a_gradient_for_each_layer() -> None:
    layers = SharedParameters(parameters=500, tensors=2, blocks=(1, 2, 3, 4))
    parts = ModelParts(**{name: ModelPart() for name in ("embeddings", "layer", "head", "stage")}, shared=(layers,))
    for each in predict(spec_of(), plan_of("1f1b", 2, 4), parts=parts):
        assert (each.parameters, each.gradients, each.optimizer) == (2000, 2 * 2000, 2 * 2000 + 2 * 4)


def test_memory_of_activations_counts_the_rows_of_the_fullest_replica() -> None:
    """Seven rows on two replicas: four, three. Three microbatches of the first one have two, one and one."""
    spec = spec_of(train={"global_batch_size": 7}, parallel={"pp": 1, "dp": 2}, schedule={"num_microbatches": 3})
    (worker,) = predict(spec, plan_of("gpipe", 1, 3))
    row = 4 * LAYER + 100 * WIDTH + 10 + WIDTH**2
    assert worker.activations == 4 * row + 3 * (CONTEXT + 4)


def test_memory_under_recompute_is_the_input_of_each_stage_and_once_what_runs_again() -> None:
    spec = spec_of(train={"global_batch_size": 4, "recompute": "full"})
    first, last = predict(spec, plan_of("gpipe", 2, 4))
    stage = 2 * LAYER + CONTEXT + WIDTH**2
    message = 4 * WIDTH * HIDDEN_SIZE
    assert first.activations == stage + 100 * WIDTH  # its inputs are rows, no hidden states
    assert last.activations == stage + 4 + 10 + 3 * message


def test_memory_under_recompute_of_some_layers_keeps_the_rest() -> None:
    spec = spec_of(train={"global_batch_size": 4, "recompute": 1})
    first, last = predict(spec, plan_of("gpipe", 2, 4))
    kept = LAYER + CONTEXT + WIDTH**2
    again = kept + 100 * WIDTH
    assert first.activations == 3 * kept + max(kept, again)
    message = 4 * WIDTH * HIDDEN_SIZE
    assert last.activations == 4 * (kept + 4 + 10 + message)  # more than what its first layer takes


def test_memory_of_frozen_layers_is_none_on_the_first_stage() -> None:
    """It has two layers; of the one that is trained, which runs again, nothing is kept."""
    train = {"global_batch_size": 4, "frozen_layers": 1}
    trained = LAYER + CONTEXT + WIDTH**2
    first, _ = predict(spec_of(train=train), plan_of("gpipe", 2, 4))
    assert first.activations == 4 * trained
    first, _ = predict(spec_of(train={**train, "recompute": 2}), plan_of("gpipe", 2, 4))
    assert first.activations == trained


def test_memory_between_the_halves_of_a_backward_is_what_waits() -> None:
    """Worker 1 of zbh1 has two microbatches in flight at most, of which one has only its weight gradients to come."""
    _, last = predict(spec_of(), plan_of("zbh1", 2, 4))
    stage = 2 * LAYER + CONTEXT + WIDTH**2 + 4 + 10
    assert last.activations == stage + 2 * WIDTH


@pytest.mark.parametrize(
    ("schedule", "boundary", "borders"),
    [
        # A receive is posted one action ahead: worker 1 has two gradients when it has computed a third.
        ("gpipe", "compute", [2, 3, 2]),
        ("gpipe", "fp32", [4, 6, 4]),
    ],
)
def test_memory_at_borders_is_what_has_come_and_what_is_to_go(schedule: str, boundary: str, borders: list[int]) -> None:
    train = {"global_batch_size": 4, "precision": "bf16", "boundary_dtype": boundary}
    memory = predict(spec_of(train=train), plan_of(schedule, 3, 4), num_layers=3)
    assert [each.borders for each in memory] == [count * 2 * WIDTH * HIDDEN_SIZE for count in borders]


def test_limit_that_is_kept_or_not_given_is_no_problem() -> None:
    plan = plan_of("gpipe", 2, 4)
    most = max(each.total for each in predict(spec_of(), plan))
    assert problem(spec_of(), plan) is None
    assert problem(spec_of(limits={"device_memory_bytes": most}), plan) is None
    found = problem(spec_of(limits={"device_memory_bytes": most - 1}), plan)
    assert found is not None
    assert found.key == "limits.device_memory_bytes"


def test_limit_is_no_matter_to_predictions() -> None:
    spec = spec_of(model={"pretrained": "/m"}, predict={"split": "test"}, limits={"device_memory_bytes": 1})
    assert problem(spec, plan_of("gpipe", 2, 4)) is None


def test_limit_that_recomputing_would_keep_says_so() -> None:
    plan = plan_of("gpipe", 2, 4)
    first, _ = predict(spec_of(), plan)
    again, _ = predict(spec_of(train={"global_batch_size": 4, "recompute": "full"}), plan)
    found = problem(spec_of(limits={"device_memory_bytes": "80KiB"}), plan)
    assert found is not None
    assert found.message == (
        f"is 80KiB, but worker 0 needs {first.total} bytes, which are {shown(first.total)} "
        "(parameters 4.69 KiB, gradients 4.69 KiB, optimizer 9.41 KiB, activations 82.5 KiB, borders 160 bytes); "
        "needs fewer rows at once (a larger schedule.num_microbatches, a smaller data.max_length), or "
        f"train.recompute: full, which takes it to {shown(again.total)}, or more stages (parallel.pp)"
    )


def test_limit_below_the_weights_asks_for_more_stages() -> None:
    found = problem(spec_of(limits={"device_memory_bytes": 19_000}), plan_of("1f1b", 2, 4))
    assert found is not None
    assert found.message.endswith(
        "; its weights and their state alone are more: needs more stages (parallel.pp), or a smaller model"
    )


def test_memory_is_shown_by_worker_and_of_many_the_first_and_the_fullest() -> None:
    def worker(parameters: int) -> WorkerMemory:
        return WorkerMemory(parameters=parameters, gradients=1, optimizer=2, activations=2048, borders=0)

    assert memory_record([worker(3)]) == [
        {"worker": 0, "parameters": 3, "gradients": 1, "optimizer": 2, "activations": 2048, "borders": 0, "total": 2054}
    ]
    rows = memory_rows([worker(count) for count in (*range(40), 9000, 5)])
    assert rows[0] == (
        "memory, worker 0",
        "2.00 KiB  (parameters 0 bytes, gradients 1 bytes, optimizer 2 bytes, activations 2.00 KiB, borders 0 bytes)",
    )
    assert [name for name, _ in rows[31:]] == ["memory, worker 31", "memory, worker 40", ""]
    assert rows[-1][1] == "9 further workers need no more than worker 40"


@pytest.mark.parametrize(
    ("text", "size"),
    [(7, 7), ("1KiB", 1024), ("1.5GiB", 3 * 2**29), ("0.050KiB", 51), ("16GiB", 2**34), ("2TiB", 2**41)],
)
def test_bytes_of_a_number_or_a_text(text: int | str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.00 KiB"), (3 * 2**29, "1.50 GiB"), (1023 * 2**30, "1023 GiB"),
     (5000 * 2**40, "5000 TiB")],
)  # fmt: skip
def test_bytes_are_shown_with_three_digits(size: int, text: str) -> None:
    assert shown(size) == text
