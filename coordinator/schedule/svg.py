"""Draws a timeline as a picture, to scale."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from coordinator.schedule.actions import Op
from coordinator.schedule.placement import Placement
from coordinator.schedule.simulate import Span, Timeline

# Lengths are in pixels.
_SHORTEST_ACTION = 20  # room for two digits
_NARROWEST, _WIDEST = 720, 2400  # of the lanes
_LOWEST, _HIGHEST = 6, 26  # of a lane
_LANES_HEIGHT = 1024  # lanes get lower where together they would need more
_MARGIN = 16
_TOP = 84  # of the first lane; title and legend stand above
_AXIS_HEIGHT = 40
_SWATCH = 14
_FONT = 11
_CHARACTER, _TITLE_CHARACTER = 6.5, 9.5  # width of one
_SHARE = 48  # of the idle shares behind the lanes
_BASELINE = 4  # of text, below the middle of what it stands in

_NAMES = {
    Op.FORWARD: "forward",
    Op.BACKWARD: "backward",
    Op.INPUT_GRADIENT: "input gradient",
    Op.WEIGHT_GRADIENT: "weight gradient",
}
# Blue, green, vermilion and yellow, far enough apart, in both shades and from idle, for colour-blind eyes too.
_COLOURS = {
    Op.FORWARD: (0, 84, 166),
    Op.BACKWARD: (0, 158, 115),
    Op.INPUT_GRADIENT: (213, 94, 0),
    Op.WEIGHT_GRADIENT: (236, 200, 40),
}
_IDLE = (236, 236, 236)
_WHITEST = 0.5  # share of white in the last chunk's shade


def to_svg(timeline: Timeline, placement: Placement, *, title: str) -> str:
    """Return an SVG document of ``timeline``: one lane a worker, time from left to right.

    An action has the width of its time, the colour of its op, lighter from chunk to chunk of its worker, and the
    number of its microbatch where the longest number fits. Idle time is grey, and its share of the makespan stands
    behind the lane. A long plan is drawn whole; its actions are thin then.
    """
    return "\n".join(_Picture(timeline, placement, title).parts()) + "\n"


class _Picture:
    """Where things stand, and the elements that put them there."""

    def __init__(self, timeline: Timeline, placement: Placement, title: str) -> None:
        self._timeline, self._placement = timeline, placement
        self._title = "".join(character for character in title if character.isprintable())
        self._figures = f"makespan {timeline.makespan:g}, bubble {timeline.bubble_fraction:.1%}"
        spans = [span for lane in timeline.workers for span in lane]
        ops = {span.action.op for span in spans}
        self._ops = [op for op in _NAMES if op in ops]
        self._chunk_of = {
            stage: chunk
            for worker in range(placement.num_workers)
            for chunk, stage in enumerate(placement.stages_of(worker))
        }
        self._labels = [_label(worker, placement) for worker in range(placement.num_workers)]
        self._number_width = _CHARACTER * len(str(max(span.action.microbatch for span in spans))) + 2
        shortest = min(end - start for start, end, _ in spans)
        width = min(max(_SHORTEST_ACTION * timeline.makespan / shortest, _NARROWEST), _WIDEST)
        self._scale = width / timeline.makespan
        self._lane = min(max(_LANES_HEIGHT / placement.num_workers, _LOWEST), _HIGHEST)
        self._left = math.ceil(_MARGIN + _CHARACTER * max(map(len, self._labels)) + 8)
        self._right = self._left + width
        self._bottom = _TOP + placement.num_workers * self._lane

    def parts(self) -> Iterator[str]:
        """Yield the document, line by line."""
        head = _TITLE_CHARACTER * len(f"{self._title}: {self._figures}")
        width = math.ceil(max(self._right + _SHARE, _MARGIN + head) + _MARGIN)
        height = math.ceil(self._bottom + _AXIS_HEIGHT)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">'
        )
        yield f"<title>{escape(self._title)}</title>"
        yield f"<style>{''.join(self._rules())}</style>"
        yield f'<rect width="{width}" height="{height}" fill="#fff"/>'
        yield from self._head()
        yield from self._axis()
        for worker, spans in enumerate(self._timeline.workers):
            yield from self._worker(worker, spans)
        yield "</svg>"

    def _rules(self) -> Iterator[str]:
        """Yield the style sheet."""
        yield f"text{{font:{_FONT}px sans-serif;fill:#222}}"
        yield ".title{font-size:15px;font-weight:bold}"
        yield ".axis text,.lane text{text-anchor:middle}text.end{text-anchor:end}"
        yield f".lane path{{stroke-width:{_number(0.85 * self._lane)}}}.legend path{{stroke-width:{_SWATCH}}}"
        yield f".idle{{stroke:{_hex(_IDLE)}}}.axis path{{stroke:#222}}"
        for op in self._ops:
            for chunk in range(self._placement.num_chunks):
                colour = _shade(op, chunk, self._placement.num_chunks)
                yield f"path.{op}{chunk}{{stroke:{_hex(colour)}}}text.{op}{chunk}{{fill:{_ink(colour)}}}"

    def _head(self) -> Iterator[str]:
        """Yield the title and the legend."""
        yield f'<text class="title" x="{_MARGIN}" y="26">{escape(self._title)}: {self._figures}</text>'
        yield f'<g class="legend" transform="translate({_MARGIN} 54)">'
        num_chunks = self._placement.num_chunks
        swatches = [(_NAMES[op], [f"{op}{chunk}" for chunk in range(num_chunks)]) for op in self._ops]
        x = 0.0
        for name, classes in [*swatches, ("idle", ["idle"])]:
            for index, kind in enumerate(classes):
                shade = 2 * _SWATCH / len(classes)
                yield f'<path class="{kind}" d="M{_number(x + index * shade)}-{_BASELINE}h{_number(shade)}"/>'
            x += 2 * _SWATCH + 6
            yield f'<text x="{_number(x)}">{name}</text>'
            x += _CHARACTER * len(name) + 16
        if num_chunks > 1:
            yield f'<text x="{_number(x)}">(dark to light: first to last chunk of a worker)</text>'
        yield "</g>"
        yield f'<text class="end" x="{_number(self._right + _SHARE)}" y="{_TOP - 8}">idle</text>'

    def _axis(self) -> Iterator[str]:
        """Yield the axis of time below the lanes."""
        makespan = self._timeline.makespan
        step = _round_step(makespan, most=(self._right - self._left) / 60)
        ticks = [index * step for index in range(math.floor(makespan / step + 1e-9) + 1)]
        places = [_number(tick * self._scale) for tick in ticks]
        yield f'<g class="axis" transform="translate({self._left} {_number(self._bottom + 4)})">'
        yield f'<path d="M0 0H{_number(self._right - self._left)}{"".join(f"M{place} 0v5" for place in places)}"/>'
        for tick, place in zip(ticks, places, strict=True):
            yield f'<text x="{place}" y="{_FONT + 8}">{tick:g}</text>'
        yield f'<text x="-8" y="{_FONT + 8}" class="end">time</text></g>'

    def _worker(self, worker: int, spans: Sequence[Span]) -> Iterator[str]:
        """Yield one lane, and what stands before and behind it."""
        baseline = _number(_TOP + (worker + 0.5) * self._lane + _BASELINE)
        if worker % math.ceil((_FONT + 1) / self._lane) == 0:
            right = _number(self._right + _SHARE)
            yield f'<text class="end" x="{self._left - 8}" y="{baseline}">{self._labels[worker]}</text>'
            yield f'<text class="end" x="{right}" y="{baseline}">{self._timeline.bubbles[worker]:.1%}</text>'
        lines: defaultdict[str, list[str]] = defaultdict(list)
        numbers: list[str] = []
        idle_from = 0.0
        for start, end, action in spans:
            x, width = start * self._scale, (end - start) * self._scale
            lines["idle"] += self._segment(idle_from * self._scale, x)
            kind = f"{action.op}{self._chunk_of[action.stage]}"
            lines[kind] += self._segment(x, x + width - (1 if width > 4 else 0))  # neighbours stay apart
            if self._number_width <= width and self._lane > _FONT:
                numbers.append(f'<text class="{kind}" x="{_number(x + width / 2)}">{action.microbatch}</text>')
            idle_from = end
        lines["idle"] += self._segment(idle_from * self._scale, self._right - self._left)
        yield f'<g class="lane" transform="translate({self._left} {baseline})">'
        yield from (f'<path class="{kind}" d="{"".join(line)}"/>' for kind, line in lines.items() if line)
        yield from numbers
        yield "</g>"

    def _segment(self, start: float, end: float) -> list[str]:
        """Return a piece of a lane's line, unless nobody could see it."""
        return [f"M{_number(start)}-{_BASELINE}h{_number(end - start)}"] if end - start > 0.01 else []


def _label(worker: int, placement: Placement) -> str:
    stages = placement.stages_of(worker)
    if len(stages) == 1:
        return f"worker {worker}, stage {stages[0]}"
    shown = ", ".join(map(str, stages)) if len(stages) <= 4 else f"{stages[0]} to {stages[-1]}"
    return f"worker {worker}, stages {shown}"


def _shade(op: Op, chunk: int, num_chunks: int) -> tuple[int, ...]:
    """Return the colour of ``op`` in one chunk as red, green and blue."""
    white = _WHITEST * chunk / max(num_chunks - 1, 1)
    return tuple(round(part + (255 - part) * white) for part in _COLOURS[op])


def _hex(colour: tuple[int, ...]) -> str:
    return f"#{bytes(colour).hex()}"


def _ink(colour: tuple[int, ...]) -> str:
    """Return the colour of text on ``colour``."""
    red, green, blue = colour
    return "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 100 else "#fff"


def _round_step(length: float, *, most: float) -> float:
    """Return the smallest step of 1, 2 or 5 times a power of ten that goes into ``length`` at most ``most`` times."""
    power = 10.0 ** math.floor(math.log10(length / most))
    return next(step * power for step in (1, 2, 5, 10) if length / (step * power) <= most)


def _number(value: float) -> str:
    """Return ``value`` with at most two decimals."""
    return f"{round(value, 2):g}" if abs(value) < 10_000 else f"{value:.1f}"
