"""Draws lanes of bars over time as an SVG document; knows nothing of what they stand for."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.sax.saxutils import escape

Colour = tuple[int, ...]
"""Red, green and blue."""

# Lengths are in pixels.
_SHORTEST_ACTION = 20  # room for two digits
_NARROWEST, _WIDEST = 720, 2400  # of the lanes
_LOWEST, _HIGHEST = 6, 26  # of a lane
_LANES_HEIGHT = 1024  # lanes get lower where together they would need more
_MARGIN = 16
_LEGEND_TOP, _LEGEND_ROW = 54, 20
_HEADING = 30  # above the lanes of a panel
_BETWEEN = 14  # two panels
_AXIS_HEIGHT = 40
_SWATCH = 14
_FONT = 11
_CHARACTER, _TITLE_CHARACTER = 6.5, 9.5  # width of one
_SHARE = 48  # of the idle shares behind the lanes
_BASELINE = 4  # of text, below the middle of what it stands in
_BUSY, _THIN = 0.85, 0.4  # of a lane's height


class Bar(NamedTuple):
    """A piece of a lane."""

    start: float
    end: float
    kind: str
    number: int | None
    """What stands in it, where the longest number fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of bars."""

    label: str
    bars: Sequence[Bar]
    """Not overlapping, from left to right."""
    idle_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Lanes that stand together."""

    heading: str
    lanes: Sequence[Lane]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What is drawn; a kind is a word that can be a class of a style sheet."""

    name: str
    """What the document is called."""
    title: str
    """What stands above it."""
    panels: Sequence[Panel]
    """At least one bar of an action in them."""
    actions: Mapping[str, Colour]
    """Kinds of bars that may be numbered."""
    waits: Mapping[str, Colour]
    """Kinds of bars that stand for time in between."""
    waits_are_thin: bool = False
    """Whether bars of ``waits`` are lower than the others, so that many colours stay apart."""
    legend: Sequence[tuple[str, Sequence[str]]]
    """Words for kinds that belong together."""
    remark: str = ""
    """Behind the legend."""
    length: float
    """Time at the right end of the lanes; at the left it is 0."""
    axis: str
    """What is told on the axis."""


def draw(chart: Chart) -> str:
    """Return ``chart`` as an SVG document, as wide as its shortest numbered bar needs within limits."""
    return "\n".join(_Picture(chart).parts()) + "\n"


def printable(text: str) -> str:
    """Return ``text`` without what XML cannot hold."""
    return "".join(character for character in text if character.isprintable())


class _Picture:
    """Where things stand, and the elements that put them there."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        lanes = [lane for panel in chart.panels for lane in panel.lanes]
        numbered = [bar for lane in lanes for bar in lane.bars if bar.number is not None]
        self._number_width = _CHARACTER * len(str(max((bar.number or 0 for bar in numbered), default=0))) + 2
        shortest = min((bar.end - bar.start for bar in numbered if bar.end > bar.start), default=chart.length)
        width = min(max(_SHORTEST_ACTION * chart.length / shortest, _NARROWEST), _WIDEST)
        self._scale = width / chart.length
        self._lane = min(max(_LANES_HEIGHT / len(lanes), _LOWEST), _HIGHEST)
        self._left = math.ceil(_MARGIN + _CHARACTER * max(len(lane.label) for lane in lanes) + 8)
        self._right = self._left + width
        self._width = math.ceil(max(self._right + _SHARE, _MARGIN + _TITLE_CHARACTER * len(chart.title)) + _MARGIN)
        legend = list(self._legend())
        self._legend_parts = [part for _, part in legend]
        self._tops: list[float] = []
        bottom: float = _LEGEND_TOP + max(row for row, _ in legend) * _LEGEND_ROW
        for panel in chart.panels:
            self._tops.append(bottom + _HEADING + (_BETWEEN if self._tops else 0))
            bottom = self._tops[-1] + len(panel.lanes) * self._lane
        self._bottom = bottom

    def parts(self) -> Iterator[str]:
        """Yield the document, line by line."""
        height = math.ceil(self._bottom + _AXIS_HEIGHT)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self._width}" height="{height}" '
            f'viewBox="0 0 {self._width} {height}" role="img">'
        )
        yield f"<title>{escape(self._chart.name)}</title>"
        yield f"<style>{''.join(self._rules())}</style>"
        yield f'<rect width="{self._width}" height="{height}" fill="#fff"/>'
        yield f'<text class="title" x="{_MARGIN}" y="26">{escape(self._chart.title)}</text>'
        yield f'<g class="legend" transform="translate({_MARGIN} {_LEGEND_TOP})">'
        yield from self._legend_parts
        yield "</g>"
        for top, panel in zip(self._tops, self._chart.panels, strict=True):
            if panel.heading:
                yield f'<text class="heading" x="{_MARGIN}" y="{_number(top - 8)}">{escape(panel.heading)}</text>'
            yield f'<text class="end" x="{_number(self._right + _SHARE)}" y="{_number(top - 8)}">idle</text>'
        yield from self._axis()
        for top, panel in zip(self._tops, self._chart.panels, strict=True):
            for index, lane in enumerate(panel.lanes):
                yield from self._bars(index, lane, _number(top + (index + 0.5) * self._lane + _BASELINE))
        yield "</svg>"

    def _rules(self) -> Iterator[str]:
        """Yield the style sheet."""
        chart, thin = self._chart, _number(_THIN * self._lane)
        yield f"text{{font:{_FONT}px sans-serif;fill:#222}}"
        yield ".title{font-size:15px;font-weight:bold}.heading{font-weight:bold}"
        yield ".axis text,.lane text{text-anchor:middle}text.end{text-anchor:end}"
        yield f".lane path{{stroke-width:{_number(_BUSY * self._lane)}}}.legend path{{stroke-width:{_SWATCH}}}"
        for kind, colour in chart.waits.items():
            yield f".{kind}{{stroke:{_hex(colour)}}}"
            if chart.waits_are_thin:
                yield f".lane .{kind}{{stroke-width:{thin}}}.legend .{kind}{{stroke-width:{_number(_SWATCH / 2)}}}"
        yield ".axis path{stroke:#222}"
        for kind, colour in chart.actions.items():
            yield f"path.{kind}{{stroke:{_hex(colour)}}}text.{kind}{{fill:{_ink(colour)}}}"

    def _legend(self) -> Iterator[tuple[int, str]]:
        """Yield the elements of the legend, each with the row that it stands in."""
        x, row = 0.0, 0
        for name, kinds in self._chart.legend:
            width = 2 * _SWATCH + 6 + _CHARACTER * len(name)
            x, row = self._wrapped(x, row, width)
            for index, kind in enumerate(kinds):
                shade = 2 * _SWATCH / len(kinds)
                y = row * _LEGEND_ROW - _BASELINE
                yield row, f'<path class="{kind}" d="M{_number(x + index * shade)} {y}h{_number(shade)}"/>'
            yield row, f'<text x="{_number(x + 2 * _SWATCH + 6)}" y="{row * _LEGEND_ROW}">{escape(name)}</text>'
            x += width + 16
        if self._chart.remark:
            x, row = self._wrapped(x, row, _CHARACTER * len(self._chart.remark))
            yield row, f'<text x="{_number(x)}" y="{row * _LEGEND_ROW}">{escape(self._chart.remark)}</text>'

    def _wrapped(self, x: float, row: int, width: float) -> tuple[float, int]:
        """Return where something that wide begins: at the start of the next row where this one has no room."""
        return (0.0, row + 1) if x > 0 and x + width > self._width - 2 * _MARGIN else (x, row)

    def _axis(self) -> Iterator[str]:
        """Yield the axis of time below the lanes."""
        step = _round_step(self._chart.length, most=(self._right - self._left) / 60)
        ticks = [index * step for index in range(math.floor(self._chart.length / step + 1e-9) + 1)]
        places = [_number(tick * self._scale) for tick in ticks]
        yield f'<g class="axis" transform="translate({self._left} {_number(self._bottom + 4)})">'
        yield f'<path d="M0 0H{_number(self._right - self._left)}{"".join(f"M{place} 0v5" for place in places)}"/>'
        for tick, place in zip(ticks, places, strict=True):
            yield f'<text x="{place}" y="{_FONT + 8}">{tick:g}</text>'
        yield f'<text x="-8" y="{_FONT + 8}" class="end">{escape(self._chart.axis)}</text></g>'

    def _bars(self, index: int, lane: Lane, baseline: str) -> Iterator[str]:
        """Yield one lane, and what stands before and behind it."""
        if index % math.ceil((_FONT + 1) / self._lane) == 0:
            right = _number(self._right + _SHARE)
            yield f'<text class="end" x="{self._left - 8}" y="{baseline}">{escape(lane.label)}</text>'
            yield f'<text class="end" x="{right}" y="{baseline}">{lane.idle_share:.1%}</text>'
        lines: defaultdict[str, list[str]] = defaultdict(list)
        numbers: list[str] = []
        for start, end, kind, number in lane.bars:
            x, width = start * self._scale, (end - start) * self._scale
            gap = 1 if kind in self._chart.actions and width > 4 else 0  # neighbours stay apart
            if width > 0.01:  # else nobody could see it
                lines[kind].append(f"M{_number(x)}-{_BASELINE}h{_number(width - gap)}")
            if number is not None and self._number_width <= width and self._lane > _FONT:
                numbers.append(f'<text class="{kind}" x="{_number(x + width / 2)}">{number}</text>')
        yield f'<g class="lane" transform="translate({self._left} {baseline})">'
        yield from (f'<path class="{kind}" d="{"".join(line)}"/>' for kind, line in lines.items())
        yield from numbers
        yield "</g>"


def _hex(colour: Colour) -> str:
    return f"#{bytes(colour).hex()}"


def _ink(colour: Colour) -> str:
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
