"""The stages that a job asks for, and what its layers cost a step, against numbers by hand."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.costs import CostModel, from_document
from coordinator.facts import ModelFacts
from coordinator.layout import lay_out
from coordinator.parts import MicrobatchSize, ModelPart, ModelParts
from coordinator.planning import plan_job
from coordinator.pricing import predict
from coordinator.problem import SpecError
from coordinator.spec import JobSpec, parse_spec
from coordinator.stages import layer_costs, stages_of
from tests.unit import job_costs
from tests.unit.cli_facts import facts

MICROSECONDS = 1000


def spec(**sections: Any) -> JobSpec:
    """Return a job of 32 rows in 8 microbatches on two stages."""
    model = {"config": {"model_type": "bert"}}
    sections["parallel"] = {"partition": "balanced", **sections.get("parallel", {})}
    return parse_spec({"name": "a", "model": model, "data": {"task": "demo"}, **sections})


MODEL, DATA = facts(spec())
"""Six layers."""


def costs(**changes: Any) -> CostModel:
    """Return costs of microseconds; a row more costs a hundredth of those of one row more."""
    return from_document(job_costs.costs(**{"layers": [job_costs.part(1e-6, 2e-6)], **changes}))


def sizes(job: JobSpec, known: CostModel | None, *, model: ModelFacts = MODEL) -> list[int]:
    return [piece.num_layers for piece in stages_of(job, model, costs=known)]


def test_layer_costs_are_those_of_all_microbatches_and_one_update() -> None:
    """Microbatches of 4 rows: 1.03 of what one row costs."""
    known = costs(
        embeddings=job_costs.part(0, 0, optimizer=50e-6),
        layers=[job_costs.part(1e-6, 2e-6, optimizer=5e-6)],
        head=job_costs.part(3e-6, 6e-6, optimizer=1e-6),
    )
    found = layer_costs(spec(), known, num_layers=6)
    assert found.layers == (round((8 * 3 * 1.03 + 5) * MICROSECONDS),) * 6
    assert (found.first, found.last) == (0, round(8 * 9 * 1.03 * MICROSECONDS))


def test_update_of_the_head_counts_as_far_as_it_takes_longer_than_that_of_the_embeddings() -> None:
    """All stages wait for stage 0's update while they do their own."""
    known = costs(embeddings=job_costs.part(1e-6, 0, optimizer=50e-6), head=job_costs.part(0, 0, optimizer=80e-6))
    found = layer_costs(spec(), known, num_layers=6)
    assert (found.first, found.last) == (round(8 * 1.03 * MICROSECONDS), 30 * MICROSECONDS)


def test_making_the_gradient_of_the_table_is_work_of_stage_0() -> None:
    found = layer_costs(spec(), costs(first_backward_seconds=7e-6), num_layers=6)
    assert found.first == 7 * MICROSECONDS


def test_layer_costs_of_each_layer_are_its_own() -> None:
    known = costs(layers=[job_costs.part(layer * 1e-6, 2e-6) for layer in range(6)])
    found = layer_costs(spec(), known, num_layers=6)
    assert found.layers == tuple(round(8 * (layer + 2) * 1.03 * MICROSECONDS) for layer in range(6))


@pytest.mark.parametrize(
    ("recompute", "forwards"), [("none", 8), ("full", 16), ("except_last", 15), (1, 8), ([1, 1], 8)]
)
def test_layer_costs_have_the_forwards_that_are_computed_again(recompute: object, forwards: int) -> None:
    found = layer_costs(spec(train={"recompute": recompute}), costs(), num_layers=6)
    assert found.layers[0] == round((forwards + 8 * 2) * 1.03 * MICROSECONDS)


def test_layer_costs_of_replicas_have_fewer_rows_and_gradients_to_add_up() -> None:
    """Two replicas of two slices of eight: one row a microbatch, sixteen of them."""
    sized = {
        name: {**job_costs.part(0, 0), "parameter_bytes": size} for name, size in (("embeddings", 1000), ("head", 4000))
    }
    known = costs(**sized, reduce_seconds_per_byte=2e-9)
    job = spec(parallel={"dp": 2}, train={"gradient_accumulation_steps": 2})
    found = layer_costs(job, known, num_layers=6)
    assert (found.layers[0], found.first, found.last) == (16 * 3 * MICROSECONDS, 0, 6 * MICROSECONDS)
    assert layer_costs(spec(), known, num_layers=6).last == 0


def test_balanced_stages_have_fewer_layers_where_the_table_s_gradient_is_made() -> None:
    """By hand: a layer takes 24.72 us a step, making the gradient as much as two of them: 2 + 2 and 4."""
    known = costs(first_backward_seconds=2 * 24.72e-6)
    assert sizes(spec(), known) == [2, 4]
    assert sizes(spec(parallel={"partition": "even"}), known) == [3, 3]


def test_balanced_stages_do_not_shrink_for_an_update_that_all_of_them_wait_for() -> None:
    """Fewer layers on stage 0 would make the step longer: it begins when the table is updated, whoever computes."""
    known = costs(embeddings=job_costs.part(0, 0, optimizer=2 * 24.72e-6))
    assert sizes(spec(), known) == [3, 3]
    steps = {}
    for layers in ([3, 3], [2, 4]):
        job = spec(parallel={"layers_per_stage": layers, "partition": "even"})
        steps[tuple(layers)] = predict(job, lay_out(job, MODEL, known), known).makespan
    assert steps[3, 3] < steps[2, 4]


def test_balanced_stages_have_fewer_layers_where_the_head_is_computed() -> None:
    """A head over a vocabulary, of two layers' time."""
    assert sizes(spec(), costs(head=job_costs.part(2e-6, 4e-6))) == [4, 2]


def test_balanced_stages_of_several_chunks_are_one_for_each() -> None:
    """In a V stage 3 is on worker 0 as well; the stages, not the workers, are made alike."""
    job = spec(schedule={"name": "zbv", "num_chunks": 2})
    assert sizes(job, costs(head=job_costs.part(1e-6, 2e-6))) == [2, 2, 1, 1]


def test_balanced_stages_without_costs_are_refused_with_where_to_get_them() -> None:
    with pytest.raises(SpecError) as caught:
        stages_of(spec(), MODEL)
    assert str(caught.value) == (
        "parallel.partition: is balanced, but nothing is known of what layers cost; "
        "needs parallel.costs, which takt profile writes"
    )


def test_plan_job_balances_stages_by_the_sizes_of_the_models_parts() -> None:
    """Embeddings that take as long as two layers."""
    parts = ModelParts(
        embeddings=ModelPart(forward_operations=MicrobatchSize(row_linear=100)),
        layer=ModelPart(forward_operations=MicrobatchSize(row_linear=50)),
        head=ModelPart(),
        stage=ModelPart(),
    )
    model = replace(MODEL, parts=parts)
    for partition, layers in (("balanced", [2, 4]), ("even", [3, 3])):
        plan = plan_job(spec(parallel={"partition": partition}), model=model, data=DATA)
        assert [piece.num_layers for piece in plan.partition] == layers
