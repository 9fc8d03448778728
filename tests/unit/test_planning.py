"""From spec and facts to a job's plan."""

import pytest

from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.planning import JobPlan, plan_job
from coordinator.problem import Problem, SpecError
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


def test_plan_job_in_a_v_puts_first_and_last_stage_on_worker_0() -> None:
    """H63: layers of stages, not of workers, differ by at most one."""
    job = plan(parallel={"pp": 2, "dp": 2}, schedule={"name": "zbv", "num_chunks": 2})
    layers = [[(s.stage, s.first_layer, s.num_layers) for s in job.slices_of(w)] for w in range(4)]
    assert layers == [[(0, 0, 3), (3, 8, 2)], [(1, 3, 3), (2, 6, 2)]] * 2


def test_plan_job_with_layers_per_stage_gives_them_to_the_stages_in_order() -> None:
    schedule = {"name": "zbv", "num_chunks": 2}
    job = plan(parallel={"pp": 2, "dp": 2, "layers_per_stage": [1, 2, 3, 4]}, schedule=schedule)
    layers = [[(s.stage, s.first_layer, s.num_layers) for s in job.slices_of(w)] for w in range(4)]
    assert layers == [[(0, 0, 1), (3, 6, 4)], [(1, 1, 2), (2, 3, 3)]] * 2


def test_plan_job_with_layers_per_stage_recomputes_shares_of_those() -> None:
    """The evenly split ten layers would be 5 and 5."""
    job = plan(parallel={"pp": 2, "layers_per_stage": [2, 8]}, schedule={"name": "gpipe"}, train={"recompute": 4})
    assert [part / job.recompute.whole for part in job.recompute.parts] == [1, 1 / 2]


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


@pytest.mark.parametrize(
    ("schedule", "makespan", "peak"),
    [
        ({"name": "interleaved", "num_chunks": 2}, 28.5, (5.5, 4.5, 3.5, 2.5)),
        # M(F + B) and 4.5 more, where groups of 4 would be 10 more and leave a last group of 1
        ({"name": "interleaved", "num_chunks": 2, "num_microbatches": 9, "group_size": 5}, 31.5, None),
        ({"name": "1f1b", "warmup": "eager"}, 33, (7, 5, 3, 1)),
        ({"name": "1f1b", "warmup": [6, 4, 2, 0]}, 33, (7, 5, 3, 1)),
        ({"name": "zbh1"}, 27, (4, 4, 4, 4)),
    ],
    ids=["interleaved", "group_size", "eager", "warmup", "zbh1"],
)
def test_plan_job_takes_every_option_of_the_schedule(
    schedule: dict[str, object], makespan: float, peak: tuple[float, ...] | None
) -> None:
    prediction = plan(parallel={"pp": 4}, schedule={"num_microbatches": 8, **schedule}).prediction
    assert prediction.makespan == makespan
    assert peak in (None, prediction.peak_in_flight)


@pytest.mark.parametrize(
    ("recompute", "parts"),
    [
        ("none", (0, 0, 0, 0)),
        ("full", (6, 6, 6, 6)),
        ("except_last", (6, 6, 6, 6)),
        (2, (4, 4, 6, 6)),  # ten layers are 3, 3, 2, 2; in sixths
        (7, (6, 6, 6, 6)),
        ([0, 3, 1, 2], (0, 6, 3, 6)),
    ],
)
def test_plan_job_knows_the_share_of_every_stage_that_is_computed_again(
    recompute: object, parts: tuple[int, ...]
) -> None:
    job = plan(parallel={"pp": 4}, schedule={"name": "gpipe"}, train={"recompute": recompute})
    whole = job.recompute.whole
    assert [part / whole for part in job.recompute.parts] == [part / 6 for part in parts]
    assert job.recompute.kept_microbatch == (7 if recompute == "except_last" else None)


def test_plan_job_predicts_a_step_with_what_is_computed_again() -> None:
    job = plan(parallel={"pp": 4}, schedule={"name": "1f1b", "num_microbatches": 8}, train={"recompute": "full"})
    assert job.prediction.makespan == (8 + 3) * 4
    assert job.prediction.bubble_fraction == pytest.approx(3 / 11)
    assert job.prediction.peak_activations == (1, 1, 1, 1)


@pytest.mark.parametrize(("name", "num_chunks"), [("1f1b", 1), ("interleaved", 2), ("zbv", 2), ("looped_bfs", 3)])
def test_plan_job_evaluates_every_microbatch_on_every_stage_of_any_placement(name: str, num_chunks: int) -> None:
    job = plan(parallel={"pp": 2}, schedule={"name": name, "num_chunks": num_chunks, "num_microbatches": 4})
    forwards = [str(action) for order in job.evaluate.orders for action in order]
    assert sorted(forwards) == sorted(f"{s}F{m}" for s in range(2 * num_chunks) for m in range(4))
    assert job.evaluate.placement == job.train.placement


STEP = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
"""1f1b of two workers and two microbatches."""


def test_plan_job_of_a_custom_plan_runs_its_orders() -> None:
    job = plan(schedule={"name": "custom", "file": STEP, "num_microbatches": 2})
    reference = plan(schedule={"name": "1f1b", "num_microbatches": 2})
    assert job.train.workers == reference.train.workers
    assert job.evaluate.workers == reference.evaluate.workers
    assert job.prediction.makespan == 9


def test_plan_job_of_a_custom_plan_covers_all_slices_and_evaluates_over_one() -> None:
    job = plan(
        schedule={"name": "custom", "file": STEP, "num_microbatches": 1}, train={"gradient_accumulation_steps": 2}
    )
    assert (job.train.num_step_microbatches, job.evaluate.num_step_microbatches) == (2, 1)


def refusal(text: str, *, pp: int = 2, num_microbatches: int = 2, num_chunks: int = 1) -> Problem:
    schedule = {"name": "custom", "file": text, "num_microbatches": num_microbatches, "num_chunks": num_chunks}
    with pytest.raises(SpecError) as caught:
        plan(parallel={"pp": pp}, schedule=schedule)
    (problem,) = caught.value.problems
    return problem


def test_plan_job_of_a_custom_plan_that_breaks_a_rule_is_refused_with_the_place() -> None:
    problem = refusal(STEP.replace("1F0,1B0", "1B0,1F0"))
    assert problem.key == "schedule.file"
    assert problem.message.startswith("the plan breaks the rule: ")
    (marked,) = [line for line in problem.figure.splitlines() if "<--" in line]
    assert "[1B0]" in marked


def test_plan_job_of_a_custom_plan_with_an_unreadable_cell_tells_line_and_cell() -> None:
    problem = refusal(STEP.replace("1F1", "1X1"))
    assert (problem.key, problem.figure) == ("schedule.file", "")
    assert problem.message.startswith("line 2, cell 3: '1X1' is not an action")


@pytest.mark.parametrize(
    ("counts", "key", "numbers"),
    [
        ({"pp": 3}, "schedule.file", ("2 workers", "3")),
        ({"num_microbatches": 3}, "schedule.num_microbatches", ("is 3", "2")),
        ({"num_chunks": 2}, "schedule.num_chunks", ("is 2", "1")),
    ],
)
def test_plan_job_of_a_custom_plan_of_other_counts_is_refused_with_both_numbers(
    counts: dict[str, int], key: str, numbers: tuple[str, str]
) -> None:
    problem = refusal(STEP, **counts)
    assert problem.key == key
    assert all(number in problem.message for number in numbers)


def test_plan_job_of_a_custom_plan_that_does_not_ascend_has_a_notice() -> None:
    assert plan(schedule={"name": "custom", "file": STEP, "num_microbatches": 2}).train.notices == ()
    descending = "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n"
    assert plan(schedule={"name": "custom", "file": descending, "num_microbatches": 2}).train.notices


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
