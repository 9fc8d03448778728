"""Which sizes each schedule runs, and what a refusal says."""

from typing import Any

import pytest

from coordinator.schedule.actions import PlanError
from coordinator.schedule.limits import Schedule, SizeError, check_size
from coordinator.schedule.plan import make_plan

SIZE: dict[str, Any] = {"num_workers": 4, "num_chunks": 1, "num_microbatches": 8}


@pytest.mark.parametrize(
    ("schedule", "size", "message"),
    [
        ("1f1b", {"num_chunks": 0}, "num_chunks is 0, need at least 1"),
        ("zbv", {"num_chunks": -1}, "num_chunks is -1, need at least 1"),
        ("gpipe", {"num_microbatches": 0}, "num_microbatches is 0, need at least 1"),
        ("naive", {"num_chunks": 2}, "num_chunks is 2, but naive runs 1 chunk per worker; use 1, or interleaved"),
        ("gpipe", {"num_chunks": 2}, "num_chunks is 2, but gpipe runs 1 chunk per worker; use 1, or interleaved"),
        ("1f1b", {"num_chunks": 3}, "num_chunks is 3, but 1f1b runs 1 chunk per worker; use 1, or interleaved"),
        ("zbh1", {"num_chunks": 2}, "num_chunks is 2, but zbh1 runs 1 chunk per worker; use 1, or interleaved"),
        ("zbh2", {"num_chunks": 2}, "num_chunks is 2, but zbh2 runs 1 chunk per worker; use 1, or interleaved"),
        ("interleaved", {}, "num_chunks is 1, but interleaved needs at least 2; use 2, or 1f1b"),
        ("zbv", {}, "num_chunks is 1, but zbv needs 2 in a V; use 2"),
        ("dualpipev", {"num_chunks": 3}, "num_chunks is 3, but dualpipev needs 2 in a V; use 2"),
        (
            "dualpipev",
            {"num_chunks": 2, "num_microbatches": 7},
            "num_microbatches is 7, but dualpipev on 4 workers needs at least 8; use as many, or zbv",
        ),
        (
            "interleaved",
            {"num_chunks": 2, "group_size": 3},
            "group_size is 3, but interleaved on 4 workers needs at least 4; use 4",
        ),
        (
            "interleaved",
            {"num_chunks": 2, "num_microbatches": 9},
            "num_microbatches is 9, so the last group of 4 has 1, but interleaved on 4 workers needs none there or "
            "at least 4; use 8 microbatches or 12 microbatches or group_size 5",
        ),
        (
            "interleaved",
            {"num_chunks": 2, "num_microbatches": 3},
            "num_microbatches is 3, so the last group of 4 has 3, but interleaved on 4 workers needs none there or "
            "at least 4; use 4 microbatches",
        ),
        (
            "interleaved",
            {"num_chunks": 2, "num_microbatches": 13, "group_size": 6},
            "num_microbatches is 13, so the last group of 6 has 1, but interleaved on 4 workers needs none there or "
            "at least 4; use 12 microbatches or 16 microbatches or group_size 7",
        ),
        ("1f1b", {"group_size": 4}, "group_size is 4, but 1f1b has no groups; leave it out, or use interleaved"),
        ("zbh1", {"warmup": "eager"}, "warmup is eager, but zbh1 has one of its own; leave it out, or use 1f1b"),
        (
            "gpipe",
            {"warmup": (3, 2, 1, 0)},
            "warmup is [3, 2, 1, 0], but gpipe has one of its own; leave it out, or use 1f1b",
        ),
        ("1f1b", {"warmup": "late"}, "warmup is late, need eager, or a list of 4 numbers, one per stage"),
        ("1f1b", {"warmup": [3, 2, 1]}, "warmup has 3 numbers for 4 workers; give one number per stage"),
        ("1f1b", {"warmup": [3, 2, 1, -1]}, "warmup is -1 on stage 3, need at least 0"),
        (
            "1f1b",
            {"warmup": [3, 1, 2, 0]},
            "warmup rises from 1 on stage 1 to 2 on stage 2, which would wait for microbatches that stage 1 holds "
            "back; give each stage at most as many as the one before",
        ),
    ],
)
def test_check_size_of_what_cannot_run_gives_both_numbers(schedule: str, size: dict[str, Any], message: str) -> None:
    for refuse in (check_size, make_plan):
        with pytest.raises(SizeError) as error:
            refuse(schedule, **SIZE | size)
        assert str(error.value) == message
        assert error.value.option == message.split(maxsplit=1)[0]


def test_interleaved_runs_where_the_last_group_is_empty_or_has_one_per_worker() -> None:
    runs = {
        (m, n)
        for m in range(1, 14)
        for n in range(1, 14)
        if _is_planned("interleaved", num_workers=3, num_chunks=2, num_microbatches=m, group_size=n)
    }
    assert runs == {(m, n) for m in range(1, 14) for n in range(3, 14) if m % n in {0, *range(3, 14)}}


@pytest.mark.parametrize(
    ("schedule", "num_chunks"),
    [
        ("naive", 1),
        ("gpipe", 1),
        ("1f1b", 1),
        ("looped_bfs", 1),
        ("looped_bfs", 3),
        ("zbh1", 1),
        ("zbh2", 1),
        ("zbv", 2),
    ],
)
def test_any_number_of_microbatches_runs_under(schedule: str, num_chunks: int) -> None:
    for m in range(1, 18):
        make_plan(schedule, num_workers=5, num_chunks=num_chunks, num_microbatches=m)


def test_dualpipev_runs_from_two_microbatches_a_worker() -> None:
    runs = [m for m in range(1, 12) if _is_planned("dualpipev", num_workers=3, num_chunks=2, num_microbatches=m)]
    assert runs == [6, 7, 8, 9, 10, 11]


def test_check_size_knows_schedules_by_name_only() -> None:
    for schedule in Schedule:
        assert Schedule(str(schedule)) is schedule
    with pytest.raises(ValueError, match="'pipedream' is not a valid Schedule"):
        check_size("pipedream", **SIZE)


def _is_planned(schedule: str, **size: int) -> bool:
    """Return whether the sizes are taken; those that are taken must make a proved plan."""
    try:
        make_plan(schedule, **size)
    except SizeError:
        return False
    except PlanError as error:
        raise AssertionError(f"{schedule} {size} is taken but cannot be planned") from error
    return True
