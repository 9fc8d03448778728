"""A plan as CSV: one line a worker, one action a cell."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from coordinator.schedule.actions import Action, Instruction, PlanError, parse

_MAX_CELL = 100  # characters; two overlapped actions take fewer, a line with the wrong separator takes more

_OVERLAP = re.compile(r"\((.*)\)OVERLAP_F_B")
"""Two actions that torch.distributed.pipelining runs as one, for instance ``(0F4;7B0)OVERLAP_F_B``."""

_SHARDING = re.compile(r"[0-9]+(UNSHARD|RESHARD|REDUCE_GRAD)[0-9]*")
"""Cells of torch.distributed.pipelining about sharded parameters, which no worker here has."""


class Entry(NamedTuple):
    """One instruction, and the cell of its line that it was read from, counted from 1."""

    instruction: Instruction
    cell: int


def to_csv(workers: Sequence[Sequence[Instruction]]) -> str:
    """Return the lists as CSV; ``read_csv`` gives them back."""
    return "".join(",".join(map(str, instructions)) + "\n" for instructions in workers)


def read_csv(text: str) -> tuple[tuple[Entry, ...], ...]:
    """Return the lists that ``text`` holds, with their places; what they mean is for others to judge.

    Read is what ``to_csv`` writes, what torch.distributed.pipelining writes, and either as a spreadsheet
    leaves it. Skipped are empty cells, the blanks and quotes around a cell, empty lines at the end, and
    cells about sharded parameters. Overlapped actions follow each other as they are written.

    Raises:
        PlanError: There is no line, or a line is empty, or a cell is not an action; line and cell count from 1.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    workers = [_line(line, number) for number, line in enumerate(lines, start=1)]
    while workers and not workers[-1]:
        workers.pop()
    if not workers:
        raise PlanError("the plan is empty; write one line a worker")
    if not all(workers):
        raise PlanError(f"line {workers.index(()) + 1} has no action; write one line a worker, and none between them")
    return tuple(workers)


def _line(line: str, number: int) -> tuple[Entry, ...]:
    """Return the list of one worker."""
    entries = []
    for index, raw in enumerate(line.split(","), start=1):
        try:
            entries += [Entry(instruction, index) for instruction in _cell(raw.strip().strip('"').strip())]
        except PlanError as error:
            raise PlanError(f"line {number}, cell {index}: {error}") from None
    return tuple(entries)


def _cell(cell: str) -> list[Instruction]:
    """Return what one cell holds: nothing, an instruction, or the two actions of an overlap."""
    if not cell or _SHARDING.fullmatch(cell):
        return []
    if len(cell) > _MAX_CELL:
        raise PlanError(f"{cell[:20]!r}... is not an action but {len(cell)} characters; put commas between actions")
    overlap = _OVERLAP.fullmatch(cell)
    if overlap is None:
        return [parse(cell)]
    pair = [parse(part.strip()) for part in overlap[1].split(";")]
    if len(pair) != 2 or not all(isinstance(action, Action) and action.op.is_compute for action in pair):
        raise PlanError(f"{cell!r} does not overlap two actions; write for instance (0F4;7B0)OVERLAP_F_B")
    return pair
