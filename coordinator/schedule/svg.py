"""Draws a timeline as a picture, to scale."""

from collections.abc import Iterator, Sequence

from coordinator.schedule.actions import Op
from coordinator.schedule.chart import Bar, Chart, Colour, Lane, Panel, draw, printable
from coordinator.schedule.placement import Placement
from coordinator.schedule.simulate import Span, Timeline

OP_NAMES = {
    Op.FORWARD: "forward",
    Op.BACKWARD: "backward",
    Op.INPUT_GRADIENT: "input gradient",
    Op.WEIGHT_GRADIENT: "weight gradient",
}
# Blue, green, vermilion and yellow, far enough apart, in both shades and from idle, for colour-blind eyes too.
_COLOURS: dict[Op, Colour] = {
    Op.FORWARD: (0, 84, 166),
    Op.BACKWARD: (0, 158, 115),
    Op.INPUT_GRADIENT: (213, 94, 0),
    Op.WEIGHT_GRADIENT: (236, 200, 40),
}
IDLE: Colour = (236, 236, 236)
CHUNKS_REMARK = "(dark to light: first to last chunk of a worker)"
_WHITEST = 0.5  # share of white in the last chunk's shade


def to_svg(timeline: Timeline, placement: Placement, *, title: str) -> str:
    """Return an SVG document of ``timeline``: one lane a worker, time from left to right.

    An action has the width of its time, the colour of its op, lighter from chunk to chunk of its worker, and the
    number of its microbatch where the longest number fits. Idle time is grey, and its share of the makespan stands
    behind the lane. A long plan is drawn whole; its actions are thin then.
    """
    name = printable(title)
    used = {span.action.op for spans in timeline.workers for span in spans}
    ops = [op for op in OP_NAMES if op in used]
    lanes = [
        Lane(
            label=worker_label(worker, placement.stages_of(worker)),
            bars=list(_bars(spans, placement.stages_of(worker), timeline.makespan)),
            idle_share=timeline.bubbles[worker],
        )
        for worker, spans in enumerate(timeline.workers)
    ]
    chart = Chart(
        name=name,
        title=f"{name}: makespan {timeline.makespan:g}, bubble {timeline.bubble_fraction:.1%}",
        panels=[Panel(heading="", lanes=lanes)],
        actions=op_colours(ops, placement.num_chunks),
        waits={"idle": IDLE},
        legend=[*op_legend(ops, placement.num_chunks), ("idle", ["idle"])],
        remark=CHUNKS_REMARK if placement.num_chunks > 1 else "",
        length=timeline.makespan,
        axis="time",
    )
    return draw(chart)


def op_colours(ops: Sequence[Op], num_chunks: int) -> dict[str, Colour]:
    """Return the colour of each op on each chunk of a worker, by ``F0``."""
    return {f"{op}{chunk}": _shade(op, chunk, num_chunks) for op in ops for chunk in range(num_chunks)}


def op_legend(ops: Sequence[Op], num_chunks: int) -> list[tuple[str, list[str]]]:
    """Return what ``ops`` are called, with their kinds."""
    return [(OP_NAMES[op], [f"{op}{chunk}" for chunk in range(num_chunks)]) for op in ops]


def worker_label(worker: int, stages: Sequence[int]) -> str:
    """Return what stands before a worker's lane."""
    if len(stages) == 1:
        return f"worker {worker}, stage {stages[0]}"
    shown = ", ".join(map(str, stages)) if len(stages) <= 4 else f"{stages[0]} to {stages[-1]}"
    return f"worker {worker}, stages {shown}"


def _bars(spans: Sequence[Span], stages: Sequence[int], makespan: float) -> Iterator[Bar]:
    """Yield the bars of one lane, what is idle between actions and at both ends too."""
    chunks = {stage: chunk for chunk, stage in enumerate(stages)}
    idle_from = 0.0
    for start, end, action in spans:
        yield Bar(idle_from, start, "idle", None)
        yield Bar(start, end, f"{action.op}{chunks[action.stage]}", action.microbatch)
        idle_from = end
    yield Bar(idle_from, makespan, "idle", None)


def _shade(op: Op, chunk: int, num_chunks: int) -> Colour:
    """Return the colour of ``op`` in one chunk."""
    white = _WHITEST * chunk / max(num_chunks - 1, 1)
    return tuple(round(part + (255 - part) * white) for part in _COLOURS[op])
