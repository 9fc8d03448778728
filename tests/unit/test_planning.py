"""From spec and facts to a job's plan."""

import pytest

from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.planning import JobPlan, plan_job
from coordinator.problem import SpecError
from coordinator.spec import parse_spec

MODEL = ModelFacts(
    model_type="bert",
    num_layers=10,
    hidden_size=16,
    max_positions=128,
    vocabulary_size=96,
    token_types=2,
    labels=(),
)
DATA = DataFacts(
    splits=(
        Split(name="train", num_rows=1000, labelled=True, num_steps=16),
        Split(name="validation", num_rows=20, labelled=True, num_steps=1),
    ),
    labels=("no", "yes"),
    num_labels=2,
    vocabulary_size=96,
    pad_token_id=0,
    steps_per_epoch=32,
    total_steps=96,
)


def plan(**sections: dict[str, object]) -> JobPlan:
    document = {"name": "a", "model": {"config": {"model_type": "bert"}}, "data": {"task": "demo"}, **sections}
    return plan_job(parse_spec(document), model=MODEL, data=DATA)


def test_plan_job_gives_each_worker_the_layers_of_its_stage_in_every_replica() -> None:
    job = plan(parallel={"pp": 3, "dp": 2})
    layers = [[(s.stage, s.first_layer, s.num_layers) for s in job.slices_of(w)] for w in range(6)]
    assert layers == [[(0, 0, 4)], [(1, 4, 3)], [(2, 7, 3)]] * 2
    assert job.topology.num_workers == 6


@pytest.mark.parametrize(
    ("schedule", "pp", "makespan", "bubble", "peak"),
    [
        ("1f1b", 4, 33, 3 / 11, (4, 3, 2, 1)),
        ("gpipe", 4, 33, 3 / 11, (8, 8, 8, 8)),
        ("naive", 4, 96, 3 / 4, (1, 1, 1, 1)),
        ("1f1b", 1, 24, 0, (1,)),
    ],
)
def test_plan_job_predicts_a_step_in_unit_costs(
    schedule: str, pp: int, makespan: float, bubble: float, peak: tuple[int, ...]
) -> None:
    prediction = plan(parallel={"pp": pp}, schedule={"name": schedule, "num_microbatches": 8}).prediction
    assert prediction.makespan == makespan
    assert prediction.bubble_fraction == pytest.approx(bubble)
    assert prediction.peak_in_flight == peak


def test_plan_job_with_accumulation_trains_over_all_slices_and_evaluates_over_one() -> None:
    job = plan(schedule={"num_microbatches": 4}, train={"gradient_accumulation_steps": 2})
    assert job.train.num_step_microbatches == 8
    assert job.evaluate.num_step_microbatches == 4
    assert job.evaluate.forward_only


def test_plan_job_with_a_microbatch_size_plans_the_microbatches_that_it_makes() -> None:
    assert plan(schedule={"microbatch_size": 5}).train.num_microbatches == 7  # 32 rows in sevens of at most 5


def test_plan_job_takes_the_number_of_steps_from_the_data() -> None:
    assert plan().total_steps == 96


def test_plan_job_that_does_not_fit_its_model_is_refused() -> None:
    with pytest.raises(SpecError, match=r"parallel\.pp: is 11, but the model has 10 layers"):
        plan(parallel={"pp": 11})
