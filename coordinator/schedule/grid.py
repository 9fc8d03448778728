"""The worker lists of a plan side by side, with the cells at fault marked."""

from collections.abc import Mapping, Sequence

from coordinator.schedule.actions import Instruction

_CONTEXT = 6  # lines shown above and below a marked one
_MAX_WORKERS = 12  # columns shown

Cell = tuple[int, int]
"""A worker, and a position in its list; the position past the end stands for what is missing there."""


def grid(workers: Sequence[Sequence[Instruction]], marks: Mapping[Cell, str]) -> str:
    """Return the lists as columns, one line a position, around the ``marks``, of which there is one at least.

    A marked cell stands in brackets, and its line ends with ``<-- worker W: TEXT``.
    Lines far from any mark are left out, shown as ``...``. Of many workers those with a mark are shown,
    and those next to the first of them.
    """
    columns = _columns(len(workers), marks)
    longest = max(map(len, workers))
    near = {at + offset for worker, at in marks if worker in columns for offset in range(-_CONTEXT, _CONTEXT + 1)}
    rows: dict[int, list[str]] = {}
    for at in sorted(near.intersection(range(longest + 1))):
        rows[at] = [_cell(workers[worker], at, is_marked=(worker, at) in marks) for worker in columns]
    heads = [f" worker {worker} " for worker in columns]
    widths = [max(map(len, column)) for column in zip(heads, *rows.values(), strict=True)]
    lines = [_line("", heads, widths)]
    for at in range(longest + 1):
        if at in rows:
            notes = "; ".join(f"worker {w}: {marks[w, at]}" for w in columns if (w, at) in marks)
            lines.append(_line(str(at), rows[at], widths) + (f"  <-- {notes}" if notes else ""))
        elif at < longest and lines[-1] != "...":
            lines.append("...")
    return "\n".join(line.rstrip() for line in lines)


def _columns(num_workers: int, marks: Mapping[Cell, str]) -> list[int]:
    """Return the workers to show."""
    marked = sorted({worker for worker, _ in marks})
    nearest = sorted(range(num_workers), key=lambda worker: (worker not in marked, abs(worker - marked[0])))
    return sorted(nearest[:_MAX_WORKERS])


def _cell(instructions: Sequence[Instruction], at: int, *, is_marked: bool) -> str:
    text = str(instructions[at]) if at < len(instructions) else ""
    return f"[{text}]" if is_marked else f" {text} "


def _line(label: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line of the grid: a position, then a cell for each worker."""
    return f"{label:>5} |" + " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
