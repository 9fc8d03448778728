"""The worker lists of a plan side by side, with the cells at fault marked."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from coordinator.schedule.actions import Instruction

_CONTEXT = 6  # lines shown above and below a marked one

Cell = tuple[int, int]
"""A worker, and a position in its list; the position past the end stands for what is missing there."""


def grid(workers: Sequence[Sequence[Instruction]], marks: Mapping[Cell, str]) -> str:
    """Return the lists as columns, one line a position, around the ``marks``.

    A marked cell stands in brackets, and its line ends with ``<-- worker W: TEXT``.
    Lines far from any mark are left out, shown as ``...``.
    """
    columns = [
        [f"[{text}]" if (worker, at) in marks else f" {text} " for at, text in enumerate([*map(str, instructions), ""])]
        for worker, instructions in enumerate(workers)
    ]
    heads = [f" worker {worker} " for worker in range(len(columns))]
    widths = [max(map(len, [head, *column])) for head, column in zip(heads, columns, strict=True)]
    lines = [_line("", heads, widths)]
    shown = {at + offset for _, at in marks for offset in range(-_CONTEXT, _CONTEXT + 1)}
    for at, cells in enumerate(zip_longest(*columns, fillvalue="")):
        if at in shown:
            notes = "; ".join(f"worker {w}: {text}" for (w, position), text in sorted(marks.items()) if position == at)
            lines.append(_line(str(at), cells, widths) + (f"  <-- {notes}" if notes else ""))
        elif lines[-1] != "..." and any(map(str.strip, cells)):
            lines.append("...")
    return "\n".join(line.rstrip() for line in lines)


def _line(label: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line of the grid: a position, then a cell for each worker."""
    return f"{label:>5} |" + " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
