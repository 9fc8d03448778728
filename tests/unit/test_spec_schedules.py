"""What each schedule asks of a job, and how a job that does not fit is refused: by key, with both numbers."""

import pytest

from coordinator.problem import SpecError
from coordinator.spec import JobSpec, parse_spec


def job(pp: int, **schedule: object) -> JobSpec:
    return parse_spec(
        {
            "name": "a",
            "model": {"config": {"model_type": "bert"}},
            "data": {"task": "demo"},
            "parallel": {"pp": pp},
            "schedule": schedule,
        }
    )


def refusal(pp: int, **schedule: object) -> tuple[str, str]:
    """Return key and message of the one problem that a job has."""
    with pytest.raises(SpecError) as caught:
        job(pp, **schedule)
    (problem,) = caught.value.problems
    return problem.key, problem.message


@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 7, 16])
@pytest.mark.parametrize(
    ("name", "num_chunks"),
    [("naive", 1), ("gpipe", 1), ("1f1b", 1), ("zbh1", 1), ("zbh2", 1), ("zbv", 2)]
    + [("looped_bfs", chunks) for chunks in (1, 2, 3)],
)
def test_spec_of_a_schedule_for_any_number_of_microbatches_is_taken(
    name: str, num_chunks: int, num_microbatches: int
) -> None:
    assert job(4, name=name, num_chunks=num_chunks, num_microbatches=num_microbatches).schedule.name == name


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b", "zbh1", "zbh2"])
def test_spec_of_a_schedule_of_one_chunk_with_more_is_refused(name: str) -> None:
    key, message = refusal(4, name=name, num_chunks=2)
    assert key == "schedule.num_chunks"
    assert message.startswith(f"is 2, but {name} runs 1 chunk per worker; ")


@pytest.mark.parametrize("name", ["zbv", "dualpipev"])
@pytest.mark.parametrize("num_chunks", [1, 3])
def test_spec_of_a_v_with_other_than_two_chunks_is_refused(name: str, num_chunks: int) -> None:
    key, message = refusal(2, name=name, num_chunks=num_chunks)
    assert key == "schedule.num_chunks"
    assert message.startswith(f"is {num_chunks}, but {name} needs 2 ")


def test_spec_of_interleaved_with_one_chunk_is_refused() -> None:
    key, message = refusal(2, name="interleaved")
    assert key == "schedule.num_chunks"
    assert message.startswith("is 1, but interleaved needs at least 2; ")


# P = 4: the last group of N must be empty or have at least P microbatches.
@pytest.mark.parametrize(("num_microbatches", "group_size"), [(8, None), (9, 5), (10, 5), (10, 6), (11, 6), (4, 4)])
def test_spec_of_interleaved_whose_last_group_fits_is_taken(num_microbatches: int, group_size: int | None) -> None:
    schedule = job(
        4, name="interleaved", num_chunks=2, num_microbatches=num_microbatches, group_size=group_size
    ).schedule
    assert (schedule.num_microbatches, schedule.group_size) == (num_microbatches, group_size)


@pytest.mark.parametrize(
    ("num_microbatches", "group_size", "begins"),
    [
        (9, None, "is 9, so the last group of 4 has 1, but interleaved on 4 workers needs none there or at least 4; "),
        (11, None, "is 11, so the last group of 4 has 3, "),
        (8, 5, "is 8, so the last group of 5 has 3, "),
        (2, None, "is 2, so the last group of 4 has 2, "),
    ],
)
def test_spec_of_interleaved_whose_last_group_is_too_small_is_refused(
    num_microbatches: int, group_size: int | None, begins: str
) -> None:
    key, message = refusal(
        4, name="interleaved", num_chunks=2, num_microbatches=num_microbatches, group_size=group_size
    )
    assert key == "schedule.num_microbatches"
    assert message.startswith(begins)


def test_spec_of_interleaved_with_groups_smaller_than_the_pipeline_is_refused() -> None:
    key, message = refusal(4, name="interleaved", num_chunks=2, group_size=3, num_microbatches=9)
    assert key == "schedule.group_size"
    assert message.startswith("is 3, but interleaved on 4 workers needs at least 4; ")


def test_spec_of_dualpipev_with_fewer_than_two_microbatches_a_worker_is_refused() -> None:
    key, message = refusal(4, name="dualpipev", num_chunks=2, num_microbatches=7)
    assert key == "schedule.num_microbatches"
    assert message.startswith("is 7, but dualpipev on 4 workers needs at least 8; ")
    assert job(4, name="dualpipev", num_chunks=2, num_microbatches=8).schedule.num_microbatches == 8


def test_spec_that_gives_a_microbatch_size_is_refused_by_the_microbatches_that_it_makes() -> None:
    key, message = refusal(4, name="dualpipev", num_chunks=2, microbatch_size=8)
    assert key == "schedule.num_microbatches"
    assert message.startswith("is 4, but dualpipev on 4 workers needs at least 8; ")  # 32 rows in eights


@pytest.mark.parametrize("warmup", ["eager", [6, 4, 2, 0], [3, 3, 3, 3], None])
def test_spec_of_1f1b_with_a_warmup_is_taken(warmup: object) -> None:
    taken = job(4, warmup=warmup).schedule.warmup
    assert taken == (tuple(warmup) if isinstance(warmup, list) else warmup)


@pytest.mark.parametrize(
    ("warmup", "begins"),
    [
        ([3, 2, 1], "has 3 numbers for 4 workers; "),
        ([1, 2, 1, 0], "rises from 1 on stage 0 to 2 on stage 1"),
    ],
)
def test_spec_of_1f1b_with_a_warmup_that_cannot_be_is_refused(warmup: list[int], begins: str) -> None:
    key, message = refusal(4, warmup=warmup)
    assert key == "schedule.warmup"
    assert message.startswith(begins)


CUSTOM = {"name": "custom", "file": "0F0,0B0\n"}


@pytest.mark.parametrize(
    ("schedule", "key"),
    [
        ({"name": "gpipe", "warmup": "eager"}, "schedule.warmup"),
        ({"name": "1f1b", "group_size": 4}, "schedule.group_size"),
        ({**CUSTOM, "warmup": [0]}, "schedule.warmup"),
        ({**CUSTOM, "group_size": 4}, "schedule.group_size"),
        ({"name": "auto", "warmup": [0]}, "schedule.warmup"),
        ({"name": "auto", "group_size": 4}, "schedule.group_size"),
        ({"name": "auto", "num_chunks": 2}, "schedule.num_chunks"),
    ],
)
def test_spec_with_an_option_that_its_schedule_does_not_read_is_refused(schedule: dict[str, object], key: str) -> None:
    found, message = refusal(1, **schedule)
    assert found == key
    assert message.endswith(("leave it out", "leave it out, or use 1f1b", "leave it out, or use interleaved"))


def test_spec_of_a_schedule_that_is_not_built_says_nothing_of_its_sizes() -> None:
    assert refusal(4, name="pipedream", num_chunks=2, group_size=3)[0] == "schedule.name"
