"""What is chosen among layouts, against closed forms; what makes it of a job file; what is left out."""

import json
from dataclasses import replace
from typing import Any

import pytest

from coordinator.candidates import Candidate, applied, candidates_of, own_candidate, settings
from coordinator.choice import MAX_FORWARDS, Comparison, compare, within_budget
from coordinator.costs import CostModel, from_document
from coordinator.parts import MicrobatchSize, ModelPart, ModelParts
from coordinator.planning import JobPlan, plan_job
from coordinator.pricing import Basis
from coordinator.problem import SpecError
from coordinator.spec import JobSpec, parse_spec
from coordinator.yaml_text import read_yaml
from tests.unit.cli_facts import facts
from tests.unit.job_costs import costs, part


def job(**sections: dict[str, Any]) -> JobSpec:
    """Return a job of 64 rows a step, 8 microbatches and 4 workers, but for ``sections``."""
    document: dict[str, Any] = {
        "name": "a",
        "model": {"config": {"model_type": "bert"}},
        "data": {"task": "demo"},
        "parallel": {"pp": 4},
        "train": {"global_batch_size": 64},
        "eval": {"at_end": False},
    }
    for name, section in sections.items():
        document[name] = {**document.get(name, {}), **section}
    return parse_spec(document)


def planned(spec: JobSpec, *, num_layers: int = 8) -> JobPlan:
    model, data = facts(spec)
    return plan_job(spec, model=replace(model, num_layers=num_layers), data=data)


def compared(spec: JobSpec, given: CostModel | None = None, *, num_layers: int = 8) -> Comparison:
    model, _ = facts(spec)
    return compare(spec, replace(model, num_layers=num_layers), given)


def steps(comparison: Comparison) -> dict[tuple[str, int, int], float]:
    return {
        (each.candidate.schedule, each.candidate.num_chunks, each.candidate.num_microbatches): each.step
        for each in comparison.ranked
        if each.candidate.partition == "even"
    }


AUTO = {"name": "auto"}


def test_compare_in_units_gives_the_published_lengths() -> None:
    """P=4, M=8, F=I=W=1: the table of closed forms in coordinator/schedule/README.md."""
    of_8 = {key[:2]: step for key, step in steps(compared(job())).items() if key[2] == 8}
    assert of_8 == {
        ("naive", 1): 96,
        ("gpipe", 1): 33,
        ("1f1b", 1): 33,
        ("interleaved", 2): 28.5,
        ("looped_bfs", 2): 28.5,
        ("zbh1", 1): 27,
        ("zbh2", 1): 27,
        ("zbv", 2): 25.5,
        ("dualpipev", 2): 25.5,
    }


def test_compare_in_units_of_more_microbatches_has_the_same_work_in_all() -> None:
    of_gpipe = {key[2]: step for key, step in steps(compared(job())).items() if key[0] == "gpipe"}
    # 24 of work, and P - 1 microbatches of 24 / M more
    assert of_gpipe == {4: 24 + 3 * 6, 8: 24 + 3 * 3, 16: 24 + 3 * 1.5}


def test_compare_ranks_by_time_then_prefers_the_simpler_the_fewer_chunks_the_fewer_commands() -> None:
    ranked = compared(job()).ranked
    assert [each.step for each in ranked] == sorted(each.step for each in ranked)
    order = [each.candidate.schedule for each in ranked if each.candidate.num_microbatches == 8]
    assert order == ["zbv", "dualpipev", "zbh1", "zbh2", "interleaved", "looped_bfs", "1f1b", "gpipe", "naive"]
    alone = compared(job(parallel={"pp": 1}))  # no way to be better than in order
    assert {each.step for each in alone.ranked} == {24}
    assert (alone.best.candidate.schedule, alone.best.candidate.num_chunks) == ("1f1b", 1)


def test_compare_marks_what_the_job_says_itself_also_where_only_it_has_such_a_plan() -> None:
    own = compared(job(schedule={"name": "1f1b", "warmup": "eager"})).own
    assert own is not None
    assert (own.candidate.schedule, own.step, own.peak_in_flight) == ("1f1b", 33, 7)
    custom = job(parallel={"pp": 1}, schedule={"name": "custom", "num_microbatches": 1, "file": "0F0,0B0\n"})
    own = compared(custom).own
    assert own is not None
    assert (own.candidate.schedule, own.step) == ("custom", 3)


def test_auto_takes_the_shortest_step_whose_layers_suffice() -> None:
    chosen = planned(job(schedule=AUTO))
    assert (chosen.train.schedule, chosen.train.placement.num_chunks, chosen.prediction.makespan) == ("zbv", 2, 25.5)
    assert [piece.num_layers for piece in chosen.partition] == [1] * 8
    assert chosen.spec.schedule.name == "auto"
    of_few = planned(job(schedule=AUTO), num_layers=7)
    assert (of_few.train.schedule, of_few.train.placement.num_chunks, of_few.prediction.makespan) == ("zbh1", 1, 27)


def test_auto_by_costs_avoids_split_backwards_that_take_longer() -> None:
    """Whole backwards of 2 s, halves of 2 s each: 8 microbatches of 8 rows, on 2 workers 4 layers each."""
    layer = part(1, 2)
    layer["weight_gradient_seconds"] = layer["backward_seconds"]
    layer["input_gradient_seconds"] = layer["backward_seconds"]
    given = json.dumps(costs(layers=[layer]))
    chosen = planned(job(parallel={"pp": 2, "costs": given}, schedule=AUTO))
    assert chosen.choice is not None
    assert (chosen.train.schedule, chosen.train.placement.num_chunks) == ("interleaved", 4)
    # M(F + B) + (P - 1)(F + B) / v, where the four layers of a worker take 12 s and 7 % more for 7 rows more
    assert chosen.prediction.makespan == pytest.approx(1.07 * (8 * 12 + 12 / 4))
    assert chosen.choice.best.step == chosen.prediction.makespan
    assert (chosen.choice.basis, chosen.basis) == (Basis.PROFILE, Basis.PROFILE)


def test_auto_keeps_the_number_of_stages_that_other_keys_count() -> None:
    listed = job(schedule=AUTO, train={"recompute": [1, 0, 0, 0]})
    choice = planned(listed).choice
    assert choice is not None
    assert {each.candidate.num_chunks for each in choice.ranked} == {1}


def test_prediction_by_costs_is_that_of_the_layers_of_each_stage() -> None:
    given = json.dumps(costs(embeddings=part(5, 1), step_seconds=0.5))
    plan = planned(job(parallel={"costs": given}, schedule={"name": "gpipe"}), num_layers=7)
    # Stages of 2, 2, 2 and 1 layers; the slowest forward is that of stage 0.
    assert plan.prediction.makespan == pytest.approx(1.07 * (12 + 7 * 7 + 15 + 7 * 5) + 0.5)
    assert plan.basis is Basis.PROFILE


def test_costs_of_another_number_of_layers_are_refused() -> None:
    given = json.dumps(costs(layers=[part(1, 2)] * 3))
    with pytest.raises(SpecError, match=r"parallel.costs: layers has 3 entries, but the model has 8 layers"):
        planned(job(parallel={"costs": given}))


JOBS = (
    job(),
    job(schedule=AUTO),
    job(schedule={"name": "interleaved", "num_chunks": 2, "group_size": 4}),
    job(schedule={"name": "1f1b", "warmup": [3, 2, 1, 0], "microbatch_size": 8}),
    job(parallel={"pp": 1}, schedule={"name": "custom", "num_microbatches": 1, "file": "0F0,0B0\n"}),
    job(parallel={"layers_per_stage": [3, 1, 3, 1]}),
)


@pytest.mark.parametrize("spec", JOBS, ids=lambda spec: spec.schedule.name)
def test_settings_of_every_candidate_make_it_of_the_job(spec: JobSpec) -> None:
    candidates = candidates_of(spec, num_layers=8, widely=True)
    assert candidates
    for candidate in candidates:
        document = json.loads(spec.model_dump_json(by_alias=True))
        for setting in settings(spec, candidate):
            key, _, value = setting.partition("=")
            section, name = key.split(".")
            document[section][name] = read_yaml(value).value
        changed = parse_spec(document)
        assert changed == applied(spec, candidate)
        assert own_candidate(changed) == candidate
    assert settings(spec, own_candidate(spec)) == []


@pytest.mark.parametrize(
    ("rows", "microbatches", "tried"),
    [
        (64, 8, {4, 8, 16}),
        (8, 8, {4, 8}),  # no row for more
        (64, 1, {1, 2}),
        (24, 8, {4, 8}),  # 16 would not be of one size, as 8 are
        (30, 8, {4, 8, 16}),  # neither are these
    ],
)
def test_candidates_have_half_and_twice_the_microbatches_where_these_divide_the_rows_as_well(
    rows: int, microbatches: int, tried: set[int]
) -> None:
    spec = job(train={"global_batch_size": rows}, schedule={"num_microbatches": microbatches})
    assert {each.num_microbatches for each in candidates_of(spec, num_layers=4, widely=True)} == tried
    assert {each.num_microbatches for each in candidates_of(spec, num_layers=4, widely=False)} == {microbatches}


def test_candidates_have_at_most_8_chunks_and_none_without_a_layer() -> None:
    def chunks(num_layers: int) -> set[int]:
        return {each.num_chunks for each in candidates_of(job(), num_layers=num_layers, widely=False)}

    assert chunks(4) == {1}
    assert chunks(15) == {1, 2, 3}
    assert chunks(400) == set(range(1, 9))


def test_within_budget_leaves_out_the_largest_and_says_so_but_never_the_jobs_own() -> None:
    own, small, large = (
        Candidate(schedule="1f1b", num_chunks=chunks, num_microbatches=MAX_FORWARDS // 8) for chunks in (9, 1, 8)
    )
    tried, left_out = within_budget([large, small], forwards=1, own=None)
    assert (tried, [each.candidate for each in left_out]) == ([small], [large])
    assert str(MAX_FORWARDS) in left_out[0].reason
    tried, left_out = within_budget([own, small, large], forwards=1, own=own)
    assert tried == [own]
    assert {each.candidate for each in left_out} == {small, large}


def test_compare_by_costs_tells_what_they_are() -> None:
    assert compared(job(), from_document(costs(source="estimate"))).basis is Basis.ESTIMATE
    assert compared(job()).basis is Basis.UNITS


def test_auto_takes_the_shortest_step_of_those_that_fit_a_device() -> None:
    """A row holds 1 MB on each of four layers; with slow transfers gpipe is shortest, but it holds all 64 rows."""
    row = MicrobatchSize(row=1e6)
    parts = ModelParts(
        embeddings=ModelPart(), layer=ModelPart(activation_bytes=row), head=ModelPart(), stage=ModelPart()
    )
    slow = {"latency_seconds": 50.0, "seconds_per_byte": 0.0, "bytes_per_row": 0.0}
    given = json.dumps(costs(transfer=slow))

    def chosen(limit: object) -> Comparison:
        spec = job(parallel={"costs": given}, schedule=AUTO, limits={"device_memory_bytes": limit})
        model, data = facts(spec)
        choice = plan_job(spec, model=replace(model, num_layers=4, parts=parts), data=data).choice
        assert choice is not None
        return choice

    free = chosen(None)
    assert free.best.candidate.schedule == "gpipe"
    assert {each.fits for each in free.ranked} == {None}
    held = {each.candidate.schedule: round((each.memory_bytes or 0) / 1e6) for each in free.ranked}
    assert (held["gpipe"], held["1f1b"], held["naive"]) == (64, 32, 8)
    limited = chosen("50MiB")
    fitting = [each for each in limited.ranked if each.fits]
    assert fitting == list(limited.ranked[: len(fitting)])
    assert limited.best.step == min(each.step for each in fitting) > free.best.step
    assert {each.candidate.schedule for each in limited.ranked if each.fits is False} == {"gpipe", "zbh2"}
    with pytest.raises(SpecError, match=r"limits.device_memory_bytes: is 1MiB, but worker \d needs [78]\d{6} bytes"):
        chosen("1MiB")


def test_compare_balances_layers_only_where_it_is_known_what_they_cost() -> None:
    def partitions(comparison: Comparison) -> set[str]:
        return {each.candidate.partition for each in comparison.ranked}

    assert partitions(compared(job())) == {"even"}
    assert compared(job()).left_out == ()
    assert partitions(compared(job(), from_document(costs()))) == {"even"}  # balanced ones would be the same
    by_costs = compared(job(), from_document(costs(embeddings=part(1, 2))), num_layers=11)
    assert partitions(by_costs) == {"even", "balanced"}
    # Even stages are 3, 3, 3, 2 layers with the embeddings on the first; balanced ones 2, 3, 3, 3: 12 s become 9 s.
    steps_of = {
        each.candidate.partition: each.step
        for each in by_costs.ranked
        if (each.candidate.schedule, each.candidate.num_microbatches) == ("gpipe", 8)
    }
    stages = 4 * 9 / 1.0
    assert steps_of["even"] == pytest.approx(1.07 * (stages + 7 * 12))
    assert steps_of["balanced"] == pytest.approx(1.07 * (stages + 7 * 9))
