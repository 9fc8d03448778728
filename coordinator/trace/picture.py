"""Draws what workers did in some steps, and what they waited for, beside what was planned."""

import math
from collections.abc import Sequence

from coordinator.schedule.actions import Op
from coordinator.schedule.chart import Bar, Chart, Colour, Lane, Panel, draw, printable
from coordinator.schedule.svg import CHUNKS_REMARK, IDLE, op_colours, op_legend, worker_label
from coordinator.trace.chrome import BUSY
from coordinator.trace.timeline import Span, Trace, Track, WorkerTrace

_OPS = (Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)
_STEP: Colour = (60, 60, 60)
_WAITS: dict[str, tuple[str, Colour]] = {
    "activation": ("wait for activation", (120, 180, 235)),
    "gradient": ("wait for gradient", (140, 215, 150)),
    "send": ("wait for send", (240, 130, 180)),
    "data": ("wait for rows", (150, 90, 40)),
    "command": ("wait for commands", (150, 70, 190)),
    "reduce": ("wait for all workers", (250, 150, 60)),
    "checkpoint": ("wait for checkpoint", (0, 0, 0)),
    "other": ("idle otherwise", tuple(part - 46 for part in IDLE)),
}
"""What a worker waits for: its words in the legend, and its colour."""
_MILLISECONDS_BELOW = 10.0  # seconds of a picture whose axis is in milliseconds


class NoStepError(ValueError):
    """Steps that a trace does not hold."""


def to_picture(measured: Trace, *, first: int, last: int, planned: Trace | None = None) -> str:
    """Return an SVG document of the steps from ``first`` to ``last`` of ``measured``: one lane a worker.

    Actions look as they do in a picture of a plan. What a worker waits for is a thin line in the colour of its reason,
    and the share of the time in which it does not compute stands behind the lane. ``planned``, of the same steps and on
    the same clock by its ``origin``, is drawn above to the same scale.

    Raises:
        NoStepError: A worker has no span of these steps.
    """
    parts = [_Part("measured", measured, first, last, 0.0)]
    if planned is not None:
        parts.insert(0, _Part("planned", planned, first, last, planned.origin - measured.origin))
    begin, end = min(part.begin for part in parts), max(part.end for part in parts)
    unit, factor = ("ms", 1000.0) if end - begin < _MILLISECONDS_BELOW else ("s", 1.0)
    panels = [part.panel(begin, unit, factor) for part in parts]
    kinds = {bar.kind for panel in panels for lane in panel.lanes for bar in lane.bars}
    num_chunks = max(len(worker.stages) for part in parts for worker in part.workers)
    ops = [op for op in _OPS if any(f"{op}{chunk}" in kinds for chunk in range(num_chunks))]
    waits = {kind: wait for kind, wait in _WAITS.items() if kind in kinds}
    name = printable(f"{measured.job}, {measured.schedule}, {_steps(first, last)}")
    chart = Chart(
        name=name,
        title=name,
        panels=panels,
        actions={**op_colours(ops, num_chunks), "step": _STEP},
        waits={kind: colour for kind, (_, colour) in waits.items()},
        waits_are_thin=True,
        legend=[
            *op_legend(ops, num_chunks),
            *([("update", ["step"])] if "step" in kinds else []),
            *((words, [kind]) for kind, (words, _) in waits.items()),
        ],
        remark=CHUNKS_REMARK if num_chunks > 1 else "",
        length=(end - begin) * factor,
        axis=unit,
    )
    return draw(chart)


class _Part:
    """Some steps of one trace."""

    def __init__(self, name: str, trace: Trace, first: int, last: int, shift: float) -> None:
        self._name, self._shift = name, shift
        self.workers = trace.workers
        self._lanes = [
            [span for span in _computed(worker) if first <= span.step <= last]
            for worker in sorted(trace.workers, key=lambda worker: worker.worker)
        ]
        if not self._lanes or not all(self._lanes):
            held = sorted({span.step for worker in trace.workers for span in _computed(worker)})
            message = f"{_steps(first, last)}: not {name} on every worker; the trace holds {_ranges(held)}"
            raise NoStepError(message)
        self.begin = min(span.start for own in self._lanes for span in own) + shift
        self.end = max(span.end for own in self._lanes for span in own) + shift

    def panel(self, begin: float, unit: str, factor: float) -> Panel:
        """Return the lanes, whose times are counted from ``begin`` in ``unit``, ``factor`` of which are a second."""
        length = self._length()
        workers = sorted(self.workers, key=lambda worker: worker.worker)
        lanes = [
            Lane(
                label=worker_label(worker.worker, worker.stages),
                bars=[self._bar(span, worker, begin, factor) for span in own],
                idle_share=1 - sum(span.end - span.start for span in own if span.name in BUSY) / length,
            )
            for worker, own in zip(workers, self._lanes, strict=True)
        ]
        idle = sum(lane.idle_share for lane in lanes) / len(lanes)
        return Panel(heading=f"{self._name}: {length * factor:.4g} {unit}, idle {idle:.1%}", lanes=lanes)

    def _length(self) -> float:
        """Return the time in which any of the steps was running; planned ones may leave room between them."""
        steps: dict[int, tuple[float, float]] = {}
        for span in (span for own in self._lanes for span in own):
            start, end = steps.get(span.step, (span.start, span.end))
            steps[span.step] = min(start, span.start), max(end, span.end)
        length, now = 0.0, -math.inf
        for start, end in sorted(steps.values()):
            length += max(0.0, end - max(start, now))
            now = max(now, end)
        return length

    def _bar(self, span: Span, worker: WorkerTrace, begin: float, factor: float) -> Bar:
        kind = span.name if span.name in _WAITS or span.name == "step" else "other"
        number = None
        if span.name in _OPS and span.stage in worker.stages:
            kind, number = f"{span.name}{worker.stages.index(span.stage)}", span.microbatch
        start, end = ((self._shift + time - begin) * factor for time in (span.start, span.end))
        return Bar(start, end, kind, number)


def _computed(worker: WorkerTrace) -> list[Span]:
    """Return what a worker computed and waited for, in order of time."""
    return sorted((span for span in worker.spans if span.track is Track.COMPUTE), key=lambda span: span.start)


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _ranges(steps: Sequence[int]) -> str:
    """Return ascending numbers in words, such as ``1 to 5 and 40``."""
    runs: list[tuple[int, int]] = []
    for step in steps:
        if runs and runs[-1][1] == step - 1:
            runs[-1] = runs[-1][0], step
        else:
            runs.append((step, step))
    return " and ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in runs) or "no step"
