"""What stages need of their devices before their layers are known: what is predicted of workers once they are."""

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.facts import ModelFacts
from coordinator.layout import lay_out, train_plan
from coordinator.memory import predict_memory
from coordinator.partition import explicit_partition
from coordinator.parts import MicrobatchSize, ModelPart, ModelParts, SharedParameters
from coordinator.pricing import known_costs
from coordinator.problem import SpecError
from coordinator.spec import JobSpec, parse_spec
from coordinator.stage_memory import memory_of_stages

PARTS = ModelParts(
    embeddings=ModelPart(parameters=3000, tensors=2, activation_bytes=MicrobatchSize(row_linear=100)),
    layer=ModelPart(
        parameters=1000,
        tensors=3,
        forward_operations=MicrobatchSize(row_linear=5000),
        activation_bytes=MicrobatchSize(row_linear=1000, row_quadratic=8),
        waiting_bytes=MicrobatchSize(row_linear=300),
    ),
    head=ModelPart(parameters=50, tensors=1, activation_bytes=MicrobatchSize(fixed=4, row=10)),
    stage=ModelPart(activation_bytes=MicrobatchSize(fixed_linear=3)),
    shared=(SharedParameters(parameters=70, tensors=1, blocks=(0, 9)),),
)
MODEL = ModelFacts(
    model_type="bert",
    num_layers=8,
    hidden_size=16,
    max_positions=128,
    vocabulary_size=96,
    token_types=2,
    labels=(),
    parts=PARTS,
)


def spec(*, limit: int | None, **sections: Any) -> JobSpec:
    data = {"task": "demo", "max_length": 10}
    sections["parallel"] = {"partition": "balanced", **sections.get("parallel", {})}
    model = {"config": {"model_type": "bert"}}
    return parse_spec({"name": "a", "model": model, "data": data, "limits": {"device_memory_bytes": limit}, **sections})


def predicted(job: JobSpec, sizes: tuple[int, ...]) -> list[int]:
    """Return what is predicted of each worker with stages of these sizes."""
    partition = explicit_partition(sizes, num_layers=sum(sizes))
    plan = train_plan(job)
    memory = predict_memory(job, PARTS, hidden_size=MODEL.hidden_size, partition=partition, plan=plan)
    return [worker.total for worker in memory]


SECTIONS: dict[str, dict[str, Any]] = {
    "1f1b": {"parallel": {"pp": 4}},
    "gpipe, recomputed": {"parallel": {"pp": 4}, "schedule": {"name": "gpipe"}, "train": {"recompute": 1}},
    "zbh1, half precision": {"parallel": {"pp": 4}, "schedule": {"name": "zbh1"}, "train": {"precision": "bf16"}},
    "ragged, frozen": {"parallel": {"pp": 4}, "train": {"global_batch_size": 37, "frozen_layers": 3}},
    "zbv": {"parallel": {"pp": 2}, "schedule": {"name": "zbv", "num_chunks": 2}},
    "interleaved": {"parallel": {"pp": 2}, "schedule": {"name": "interleaved", "num_chunks": 2}},
}


@pytest.mark.parametrize("name", SECTIONS)
@settings(max_examples=20)
@given(cuts=st.sets(st.integers(1, 7), min_size=3, max_size=3))
def test_stages_need_what_is_predicted_of_their_workers(name: str, cuts: set[int]) -> None:
    """Exactly, where a worker has one stage; with several never less, since their peaks need not come at once."""
    job = spec(limit=1, **SECTIONS[name])
    plan = train_plan(job)
    bounds = [0, *sorted(cuts), 8]
    sizes = tuple(end - first for first, end in pairwise(bounds))
    memory = memory_of_stages(job, MODEL, plan)
    assert memory is not None
    needed = [0] * job.parallel.pp
    for stage, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        needed[plan.placement.worker_of(stage)] += memory.stage_bytes(stage, end - size, end)
    if plan.placement.num_chunks == 1:
        assert needed == predicted(job, sizes)
    else:
        assert all(own >= told for own, told in zip(needed, predicted(job, sizes), strict=True))


@pytest.mark.parametrize("name", SECTIONS)
def test_stages_never_need_more_with_layers_left_out(name: str) -> None:
    job = spec(limit=1, **SECTIONS[name])
    memory = memory_of_stages(job, MODEL, train_plan(job))
    assert memory is not None
    for stage in range(4):
        for first in [0] if stage == 0 else range(stage, 8):
            for end in [8] if stage == 3 else range(first + 1, 8):
                whole = memory.stage_bytes(stage, first, end)
                shorter = [memory.stage_bytes(stage, first, end - 1)] if stage < 3 and end - 1 > first else []
                later = [memory.stage_bytes(stage, first + 1, end)] if stage > 0 and first + 1 < end else []
                assert all(part <= whole for part in [*shorter, *later])


@pytest.mark.parametrize("name", ["1f1b", "zbv"])
def test_balanced_stages_of_a_job_fit_the_limit_that_it_sets(name: str) -> None:
    """A byte less than the fullest worker would have without a limit makes others of them."""
    free = spec(limit=None, **SECTIONS[name])
    sizes = tuple(piece.num_layers for piece in lay_out(free, MODEL, known_costs(free, MODEL)).partition)
    most = max(predicted(free, sizes))
    tight = spec(limit=most - 1, **SECTIONS[name])
    others = tuple(piece.num_layers for piece in lay_out(tight, MODEL, known_costs(tight, MODEL)).partition)
    assert others != sizes
    assert max(predicted(tight, others)) < most


def test_balanced_stages_of_a_job_that_fit_no_device_are_refused_at_the_limit() -> None:
    job = spec(limit=1000, parallel={"pp": 2})
    with pytest.raises(SpecError) as caught:
        lay_out(job, MODEL, known_costs(job, MODEL))
    (problem,) = caught.value.problems
    assert problem.key == "limits.device_memory_bytes"
    assert problem.message.startswith("is 1000, but no sizes were found whose stages fit into 1000 bytes a device: ")
    assert "stage 1 with layers 2-7 needs " in problem.message  # one microbatch in flight, where stage 0 has two


def test_memory_of_stages_is_none_without_a_limit_or_without_parts() -> None:
    job = spec(limit=None)
    assert memory_of_stages(job, MODEL, train_plan(job)) is None
