"""Draws a timeline as text, to scale."""

import math
from collections.abc import Sequence

from coordinator.schedule.simulate import Span, Timeline

_DIVISIONS = (1, 2, 3, 4)


def draw(timeline: Timeline) -> str:
    """Return one line a worker: an action begins with its name and is as long as it takes, ``.`` is idle.

    A column stands for the shortest action, or for a half, third or quarter of it where all times are
    whole multiples of that; other times are rounded to the nearest column. Lines are never cut.
    Where each worker has one stage, of its own number, it is headed by that, and its cells leave the stage out.
    """
    one_stage_each = all({span.action.stage for span in spans} == {w} for w, spans in enumerate(timeline.workers))
    names = [[_name(span, with_stage=not one_stage_each) for span in spans] for spans in timeline.workers]
    shortest = min(span.end - span.start for spans in timeline.workers for span in spans)
    division = _division(timeline, shortest)
    unit = shortest / division
    width = math.ceil((1 + max(len(name) for row in names for name in row)) / division)
    last = _nearest(timeline.makespan / unit)
    head = "stage" if one_stage_each else "worker"
    digits = len(str(len(timeline.workers) - 1))
    return "".join(
        f"{head} {worker:<{digits}} | {_row(row, spans, unit, width, last)}".rstrip() + "\n"
        for worker, (row, spans) in enumerate(zip(names, timeline.workers, strict=True))
    )


def _name(span: Span, *, with_stage: bool) -> str:
    return str(span.action) if with_stage else f"{span.action.op}{span.action.microbatch}"


def _row(names: Sequence[str], spans: Sequence[Span], unit: float, width: int, last: int) -> str:
    """Return one worker's cells up to column ``last``, each ``width`` characters a column."""
    cells, column = [], 0
    for name, span in zip(names, spans, strict=True):
        start = max(column, _nearest(span.start / unit))
        end = max(start + 1, _nearest(span.end / unit))
        cells.append(f"{'.':<{width}}" * (start - column))
        filler = "-" if end - start > 1 else " "
        cells.append(f"{name:{filler}<{(end - start) * width - 1}} ")
        column = end
    cells.append(f"{'.':<{width}}" * (last - column))
    return "".join(cells)


def _division(timeline: Timeline, shortest: float) -> int:
    """Return how many columns the shortest action gets."""
    times = [time for spans in timeline.workers for span in spans for time in (span.start, span.end)]
    for division in _DIVISIONS:
        columns = [time * division / shortest for time in times]
        if all(abs(column - _nearest(column)) < 1e-6 for column in columns):
            return division
    return 1


def _nearest(columns: float) -> int:
    """Round half up: unlike ``round``, which would make neighbours of one length differ by two columns."""
    return int(columns + 0.5)
