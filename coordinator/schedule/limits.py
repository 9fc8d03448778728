"""The schedules that are built, and the sizes that each can run."""

import enum
from collections.abc import Sequence
from itertools import pairwise

from coordinator.schedule.actions import PlanError
from coordinator.schedule.one_f_one_b import EAGER, Warmup


class Schedule(enum.StrEnum):
    """Schedules that are built; the value is the name in a job file."""

    NAIVE = "naive"
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    LOOPED_BFS = "looped_bfs"
    ZBH1 = "zbh1"
    ZBH2 = "zbh2"
    ZBV = "zbv"
    DUALPIPEV = "dualpipev"


class SizeError(PlanError):
    """A size that the schedule cannot run; the text begins with ``option``."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"{option} {text}")
        self.option = option
        """Parameter of ``make_plan`` at fault."""


def check_size(
    schedule: str,
    *,
    num_workers: int,
    num_chunks: int,
    num_microbatches: int,
    group_size: int | None = None,
    warmup: Warmup | None = None,
) -> None:
    """Return if ``schedule``, one of ``Schedule`` by name, can run these sizes.

    Raises:
        SizeError: It cannot; the text gives the number, the number that is needed, and what to do.
        ValueError: There is no such schedule.
    """
    schedule = Schedule(schedule)
    for option, count in (("num_chunks", num_chunks), ("num_microbatches", num_microbatches)):
        if count < 1:
            raise SizeError(option, f"is {count}, need at least 1")
    _check_chunks(schedule, num_chunks)
    if schedule is Schedule.INTERLEAVED:
        _check_groups(num_workers, num_microbatches, group_size)
    elif group_size is not None:
        raise SizeError(
            "group_size", f"is {group_size}, but {schedule} has no groups; leave it out, or use interleaved"
        )
    if schedule is not Schedule.ONE_F_ONE_B and warmup is not None:
        shown = warmup if isinstance(warmup, str) else list(warmup)
        raise SizeError("warmup", f"is {shown}, but {schedule} has one of its own; leave it out, or use 1f1b")
    if warmup is not None:
        _check_warmup(warmup, num_workers)
    if schedule is Schedule.DUALPIPEV and num_microbatches < 2 * num_workers:
        raise SizeError(
            "num_microbatches",
            f"is {num_microbatches}, but {schedule} on {num_workers} workers needs at least {2 * num_workers}; "
            "use as many, or zbv",
        )


def _check_chunks(schedule: Schedule, num_chunks: int) -> None:
    match schedule:
        case Schedule.LOOPED_BFS:
            return
        case Schedule.INTERLEAVED:
            if num_chunks < 2:
                raise SizeError("num_chunks", f"is {num_chunks}, but {schedule} needs at least 2; use 2, or 1f1b")
        case Schedule.ZBV | Schedule.DUALPIPEV:
            if num_chunks != 2:
                raise SizeError("num_chunks", f"is {num_chunks}, but {schedule} needs 2 in a V; use 2")
        case _:
            if num_chunks != 1:
                text = f"is {num_chunks}, but {schedule} runs 1 chunk per worker; use 1, or interleaved"
                raise SizeError("num_chunks", text)


def _check_groups(num_workers: int, num_microbatches: int, group_size: int | None) -> None:
    """Refuse groups of fewer microbatches than workers: their chunks would wait for each other."""
    size = num_workers if group_size is None else group_size
    if size < num_workers:
        text = f"is {size}, but interleaved on {num_workers} workers needs at least {num_workers}; use {num_workers}"
        raise SizeError("group_size", text)
    last = num_microbatches % size
    if last == 0 or last >= num_workers:
        return
    full = num_microbatches - last
    fits = [f"{count} microbatches" for count in (full, full + num_workers) if count]
    if num_microbatches > num_workers:
        other = next(n for n in range(num_workers, num_microbatches + 1) if not 0 < num_microbatches % n < num_workers)
        fits.append(f"group_size {other}")
    raise SizeError(
        "num_microbatches",
        f"is {num_microbatches}, so the last group of {size} has {last}, but interleaved on {num_workers} workers "
        f"needs none there or at least {num_workers}; use {' or '.join(fits)}",
    )


def _check_warmup(warmup: str | Sequence[int], num_workers: int) -> None:
    if isinstance(warmup, str):
        if warmup != EAGER:
            raise SizeError("warmup", f"is {warmup}, need {EAGER}, or a list of {num_workers} numbers, one per stage")
        return
    if len(warmup) != num_workers:
        text = f"has {len(warmup)} number{'s' if len(warmup) != 1 else ''} for {num_workers} workers; "
        text += "give one number per stage"
        raise SizeError("warmup", text)
    for stage, depth in enumerate(warmup):
        if depth < 0:
            raise SizeError("warmup", f"is {depth} on stage {stage}, need at least 0")
    for stage, (depth, deeper) in enumerate(pairwise(warmup)):
        if deeper > depth:
            raise SizeError(
                "warmup",
                f"rises from {depth} on stage {stage} to {deeper} on stage {stage + 1}, which would wait for "
                f"microbatches that stage {stage} holds back; give each stage at most as many as the one before",
            )
