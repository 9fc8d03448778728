"""A plan and its prediction, as a JSON record and as text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from coordinator.choice import Comparison
from coordinator.cli.compare_view import choice_text, compare_record, step_text
from coordinator.cli.memory_view import memory_record, memory_rows
from coordinator.memory import WorkerMemory
from coordinator.partition import StageSlice
from coordinator.pricing import Basis
from coordinator.schedule.channel_models import ChannelModel, report
from coordinator.schedule.plan import Plan, num_commands
from coordinator.schedule.recompute import Recompute
from coordinator.schedule.simulate import Timeline
from coordinator.trace.chrome import to_chrome
from coordinator.trace.planned import planned_trace

_FORWARD_SECONDS = 0.001  # of a trace, where nobody says what a forward takes
_SEPARATOR = " | "
_MAX_COLUMNS = 1000
"""Length of the longest plan that is drawn as text, in forwards of a chunk."""
_MAX_VALUES = 32
"""Workers whose figures are listed one by one."""
_MAX_REPORTED_COMMANDS = 2**14
"""Commands of the largest plan that is tried on weaker channels; it takes a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a plan; what only a job has is None without one."""

    plan: Plan
    timeline: Timeline
    comm: float
    """What one transfer takes, in the unit of ``timeline``."""
    basis: Basis = Basis.UNITS
    """What ``timeline`` is made of."""
    recompute: Recompute | None = None
    partition: Sequence[StageSlice] | None = None
    choice: Comparison | None = None
    """What the schedule was chosen of."""
    memory: Sequence[WorkerMemory] | None = None
    """What each worker of one replica needs."""


def plan_record(shown: Shown, *, with_orders: bool) -> dict[str, Any]:
    """Return what `takt plan --output json` prints; costs are in the units of the contract, or in seconds."""
    plan, timeline = shown.plan, shown.timeline
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
    if shown.basis is not Basis.UNITS:
        record["basis"] = shown.basis
    if shown.choice is not None:
        record["choice"] = compare_record(shown.choice, None)
    if shown.partition is not None:
        record["layers_per_stage"] = [piece.num_layers for piece in shown.partition]
    if shown.recompute is not None:
        record["peak_activations"] = list(timeline.peak_activations)
    if shown.memory is not None:
        record["memory"] = memory_record(shown.memory)
    if with_orders:
        record["orders"] = [[str(action) for action in order] for order in plan.orders]
    return record


def plan_title(plan: Plan, recompute: Recompute | None) -> str:
    """Return what a picture of ``plan`` is headed with; ``recompute`` is that of a job."""
    chunks = f" x {plan.placement.num_chunks} chunks" if plan.placement.num_chunks > 1 else ""
    again = ""
    if recompute is not None and any(recompute.parts):
        again = f", recompute {_shares(recompute)}{_spared(recompute)}"
    return f"{plan.schedule}, {plan.placement.num_workers} workers{chunks}, {_microbatches(plan)} microbatches{again}"


def plan_trace(shown: Shown) -> str:
    """Return a plan as Chrome trace JSON; where nobody says otherwise a forward of a full stage takes a millisecond."""
    in_units = shown.basis is Basis.UNITS
    planned = planned_trace(
        shown.timeline,
        shown.plan.placement,
        job="plan",
        schedule=shown.plan.schedule,
        unit_seconds=_FORWARD_SECONDS if in_units else 1.0,
        comm=shown.comm,
    )
    remark = "lengths are in forwards: 1 ms stands for what one microbatch's forward takes on a full stage"
    return "".join(to_chrome(None, planned, remark=remark if in_units else "lengths are predicted by measured costs"))


def plan_lines(shown: Shown) -> list[str]:
    """Return the summary of a plan as lines of name and value."""
    plan, timeline, recompute = shown.plan, shown.timeline, shown.recompute
    choice_rows, layer_rows, recompute_rows, activation_rows = [], [], [], []
    if shown.choice is not None:
        choice_rows = [("chosen", choice_text(shown.choice))]
    if shown.partition is not None:
        layer_rows = [
            ("layers", f"{_by_worker([str(piece.num_layers) for piece in shown.partition])}  (of each stage)")
        ]
    length = f"{timeline.makespan:g}  (forward of a full stage 1, backward 2, transfer {shown.comm:g})"
    ideal = f"{timeline.ideal:g}"
    if shown.basis is not Basis.UNITS:
        length = f"{step_text(timeline.makespan, shown.basis)}  (by {shown.basis} costs; transfer {shown.comm:.3g} s)"
        ideal = step_text(timeline.ideal, shown.basis)
    if recompute is not None and any(recompute.parts):
        recompute_rows = [("recompute", _recomputed(recompute))]
        activations = _by_worker([f"{peak:.4g}" for peak in timeline.peak_activations])
        activation_rows = [("peak activations", f"{activations}  (held at once, in full stages)")]
    rows = [
        ("schedule", plan.schedule),
        *choice_rows,
        ("workers", str(plan.placement.num_workers)),
        ("chunks", f"{plan.placement.num_chunks}  (stages on each worker)"),
        ("microbatches", _microbatches(plan)),
        *layer_rows,
        *recompute_rows,
        ("makespan", length),
        ("ideal", ideal),
        ("bubble", f"{timeline.bubble_fraction:.1%}"),
        ("bubble per worker", _by_worker([f"{bubble:.1%}" for bubble in timeline.bubbles])),
        ("peak in flight", f"{_by_worker([f'{peak:g}' for peak in timeline.peak_in_flight])}  (in full stages)"),
        *activation_rows,
        *([] if shown.memory is None else memory_rows(shown.memory)),
        ("commands", f"{num_commands(plan)}  (of one step and one replica)"),
        *_channel_rows(plan),
    ]
    if not is_drawn(timeline):
        columns = f"{_columns(timeline):g} columns, at most {_MAX_COLUMNS} are drawn"
        rows.append(("picture", f"left out: {columns}; --svg FILE and --csv FILE hold all of it"))
    return [f"{name:<19}{value}" for name, value in rows]


def _recomputed(recompute: Recompute) -> str:
    return f"{_shares(recompute)}  (of a stage's forward, again in its backward{_spared(recompute)})"


def _shares(recompute: Recompute) -> str:
    return _by_worker([f"{part / recompute.whole:.0%}" for part in recompute.parts])


def _spared(recompute: Recompute) -> str:
    return "" if recompute.kept_microbatch is None else ", but not of the last microbatch"


def is_drawn(timeline: Timeline) -> bool:
    """Whether a plan is short enough to be drawn as text."""
    return _columns(timeline) <= _MAX_COLUMNS


def _columns(timeline: Timeline) -> float:
    """Return how long a plan is in shortest actions, of which each has a column."""
    return timeline.makespan / min(span.end - span.start for spans in timeline.workers for span in spans)


def _by_worker(values: Sequence[str]) -> str:
    if len(set(values)) == 1 and len(values) > 1:
        return f"{values[0]} each"
    shown = values if len(values) <= _MAX_VALUES else [*values[: _MAX_VALUES - 1], "...", values[-1]]
    return ", ".join(shown)


def _channel_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the channels that workers use, then what becomes of ``plan`` on each of the weaker kinds."""
    used = ChannelModel.ORDERED_PAIR_AND_KIND
    rows = [("channels", f"{used}  (what workers use)")]
    if num_commands(plan) > _MAX_REPORTED_COMMANDS:
        return [*rows, ("weaker, unused", "not tried, the plan is too large")]
    verdicts = report(plan.orders, plan.placement)
    weaker = [f"{verdict:<10}{model}" for model, verdict in verdicts.items() if model is not used]
    return [*rows, *zip(("weaker, unused", *[""] * (len(weaker) - 1)), weaker, strict=True)]


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
