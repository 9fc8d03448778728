"""A plan and its prediction, as a JSON record and as text."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from coordinator.schedule.plan import Plan, num_commands
from coordinator.schedule.simulate import Timeline

_SEPARATOR = " | "


def plan_record(plan: Plan, timeline: Timeline, *, with_orders: bool) -> dict[str, Any]:
    """Return what `takt plan --output json` prints; costs are in the units of the contract."""
    record: dict[str, Any] = {
        "schedule": plan.schedule,
        "num_stages": plan.placement.num_workers,
        "num_chunks": plan.placement.num_chunks,
        "num_microbatches": plan.num_microbatches,
        "makespan": timeline.makespan,
        "ideal": timeline.ideal,
        "bubble_fraction": timeline.bubble_fraction,
        "peak_in_flight": list(timeline.peak_in_flight),
        "num_weight_versions": [1] * plan.placement.num_workers,  # every schedule that is built updates at a flush
        "num_commands": num_commands(plan),
    }
    return {**record, "orders": [[str(action) for action in order] for order in plan.orders]} if with_orders else record


def plan_lines(plan: Plan, timeline: Timeline, *, comm: float) -> list[str]:
    """Return the summary of a plan as lines of name and value."""
    rows = [
        ("schedule", plan.schedule),
        ("stages", str(plan.placement.num_workers)),
        ("microbatches", _microbatches(plan)),
        ("makespan", f"{timeline.makespan:g}  (forward of a stage 1, backward 2, transfer {comm:g})"),
        ("ideal", f"{timeline.ideal:g}"),
        ("bubble", f"{timeline.bubble_fraction:.1%}"),
        ("peak in flight", f"{', '.join(f'{peak:g}' for peak in timeline.peak_in_flight)}  (activations, by stage)"),
        ("commands", f"{num_commands(plan)}  (of one step and one replica)"),
    ]
    return [f"{name:<16}{value}" for name, value in rows]


def _microbatches(plan: Plan) -> str:
    return str(plan.num_microbatches) if plan.num_slices == 1 else f"{plan.num_microbatches} x {plan.num_slices} slices"


def fold(grid: str, *, width: int) -> str:
    """Return a drawn grid in panels of at most ``width`` columns, one below the other.

    Every panel repeats the heads before the bar and ends between two cells; an action that is longer than
    one cell may go on in the next panel.
    """
    heads, _, rows = zip(*(line.partition(_SEPARATOR) for line in grid.splitlines()), strict=True)
    cell = _cell_width(rows)
    room = width - max(map(len, heads)) - len(_SEPARATOR)
    longest = max(map(len, rows))
    step = longest if longest <= room else max(cell, room // cell * cell)
    panels = [
        "".join(
            f"{head}{_SEPARATOR}{row[start : start + step]}".rstrip() + "\n"
            for head, row in zip(heads, rows, strict=True)
        )
        for start in range(0, longest, step)
    ]
    return "\n".join(panels)


def _cell_width(rows: Sequence[str]) -> int:
    """Return the columns of one cell: whatever begins after a blank begins at a multiple of it."""
    starts = {at for row in rows for at, (before, char) in enumerate(pairwise(f" {row}")) if before == " " != char}
    return math.gcd(*starts) or max(map(len, rows))
