"""Pictures of timelines, read back from their XML."""

import re
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.plan import Plan, make_plan
from coordinator.schedule.simulate import Costs, simulate
from coordinator.schedule.svg import to_svg

SVG = "{http://www.w3.org/2000/svg}"
GAP = 1  # pixel between two actions


@dataclass
class Picture:
    """An SVG document, positions in its lanes turned into time."""

    root: ElementTree.Element

    @property
    def axis(self) -> dict[float, float]:
        """Position of each tick by its time, from the left end of the lanes."""
        texts = self.group("axis").findall(f"{SVG}text")
        return {float(str(text.text)): float(text.attrib["x"]) for text in texts if text.text != "time"}

    def group(self, name: str) -> ElementTree.Element:
        return next(group for group in self.root.iter(f"{SVG}g") if group.get("class") == name)

    @property
    def lanes(self) -> list[ElementTree.Element]:
        return [group for group in self.root.iter(f"{SVG}g") if group.get("class") == "lane"]

    @property
    def texts(self) -> list[str]:
        return [str(text.text) for text in self.root.iter(f"{SVG}text")]

    def bars(self, worker: int) -> list[tuple[str, float, float]]:
        """Return class, start and end of what is drawn in one lane, in pixels, from left to right."""
        found = []
        for path in self.lanes[worker].findall(f"{SVG}path"):
            for x, width in re.findall(r"M([\d.]+)-4h([\d.]+)", path.attrib["d"]):
                found.append((path.attrib["class"], float(x), float(x) + float(width)))
        return sorted(found, key=lambda bar: bar[1])

    def numbers(self, worker: int) -> list[tuple[str, str, float]]:
        """Return class, text and middle of the numbers in one lane, from left to right."""
        texts = self.lanes[worker].findall(f"{SVG}text")
        found = [(text.attrib["class"], str(text.text), float(text.attrib["x"])) for text in texts]
        return sorted(found, key=lambda number: number[2])


def picture_of(plan: Plan, costs: Costs | None = None, title: str = "plan") -> Picture:
    return Picture(ElementTree.fromstring(to_svg(simulate(plan, costs), plan.placement, title=title)))


def custom(text: str) -> Plan:
    return make_custom_plan(text, num_workers=None, num_chunks=None, num_microbatches=None)


def test_svg_of_two_workers_draws_each_action_where_a_hand_run_has_it() -> None:
    picture = picture_of(make_plan("gpipe", num_workers=2, num_microbatches=2))
    scale = 720 / 9  # the narrowest lanes, and the makespan
    assert [
        [(kind, round(start / scale, 3), round((end + GAP * (kind != "idle")) / scale, 3)) for kind, start, end in bars]
        for bars in (picture.bars(0), picture.bars(1))
    ] == [
        [("F0", 0, 1), ("F0", 1, 2), ("idle", 2, 5), ("B0", 5, 7), ("B0", 7, 9)],
        [("idle", 0, 1), ("F0", 1, 2), ("F0", 2, 3), ("B0", 3, 5), ("B0", 5, 7), ("idle", 7, 9)],
    ]
    assert [(kind, text, x / scale) for kind, text, x in picture.numbers(1)] == [
        ("F0", "0", 1.5),
        ("F0", "1", 2.5),
        ("B0", "0", 4),
        ("B0", "1", 6),
    ]
    assert picture.axis == {time: time * scale for time in range(10)}


def test_svg_of_a_v_has_a_class_for_each_op_of_each_chunk() -> None:
    picture = picture_of(custom("0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2I0,2W0,1I0,1W0"))
    assert [kind for kind, _, _ in picture.bars(0)] == ["F0", "idle", "F1", "I1", "W1", "idle", "B0"]
    assert [kind for kind, _, _ in picture.bars(1)] == ["idle", "F0", "F1", "idle", "B1", "I0", "W0", "idle"]


@pytest.mark.parametrize(
    ("schedule", "num_chunks"),
    [("1f1b", 1), ("zbh1", 1), ("zbh2", 1), ("interleaved", 2), ("looped_bfs", 3), ("zbv", 2), ("dualpipev", 2)],
)
def test_svg_of_a_schedule_fills_each_lane_and_leaves_the_bubble_idle(schedule: str, num_chunks: int) -> None:
    plan = make_plan(schedule, num_workers=4, num_chunks=num_chunks, num_microbatches=8)
    timeline = simulate(plan)
    picture = picture_of(plan)
    last = max(picture.axis)
    scale = picture.axis[last] / last
    for worker, spans in enumerate(timeline.workers):
        bars = picture.bars(worker)
        ends = [end + GAP * (kind != "idle") for kind, _, end in bars]
        assert [start for _, start, _ in bars] == pytest.approx([0, *ends[:-1]], abs=0.02)
        idle = sum(end - start for kind, start, end in bars if kind == "idle")
        assert ends[-1] == pytest.approx(timeline.makespan * scale, abs=0.02)
        assert idle / ends[-1] == pytest.approx(timeline.bubbles[worker], abs=1e-3)
        drawn = [(kind[0], start / scale) for kind, start, _ in bars if kind != "idle"]
        assert drawn == [(span.action.op, pytest.approx(span.start, abs=2e-3)) for span in spans]
        assert [text for _, text, _ in picture.numbers(worker)] == [str(span.action.microbatch) for span in spans]


def test_svg_of_1f1b_says_what_the_closed_form_gives() -> None:
    picture = picture_of(make_plan("1f1b", num_workers=4, num_microbatches=8), title="1f1b")
    assert picture.texts[:4] == ["1f1b: makespan 33, bubble 27.3%", "forward", "backward", "idle"]  # 3/11
    assert picture.texts.count("27.3%") == 4
    assert "worker 3, stage 3" in picture.texts


def test_svg_of_chunks_names_them_in_the_legend_and_before_the_lanes() -> None:
    texts = picture_of(make_plan("dualpipev", num_workers=2, num_chunks=2, num_microbatches=4)).texts
    assert texts[1:5] == ["forward", "backward", "input gradient", "weight gradient"]
    assert "worker 0, stages 0, 3" in texts
    many = picture_of(make_plan("looped_bfs", num_workers=2, num_chunks=8, num_microbatches=1)).texts
    assert "worker 1, stages 1 to 15" in many


@pytest.mark.parametrize(
    ("num_microbatches", "costs", "ticks"),
    [
        (8, Costs(), [0, 5, 10, 15, 20, 25, 30]),
        (8, Costs(forward=0.01, input_gradient=0.01, weight_gradient=0.01), [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (97, Costs(), [*range(0, 301, 10)]),
        (97, Costs(forward=100, input_gradient=100, weight_gradient=100), [*range(0, 30001, 1000)]),
    ],
    ids=["units", "hundredths", "many", "hundreds"],
)
def test_svg_of_any_makespan_has_round_ticks(num_microbatches: int, costs: Costs, ticks: list[float]) -> None:
    picture = picture_of(make_plan("1f1b", num_workers=4, num_microbatches=num_microbatches), costs)
    assert list(picture.axis) == pytest.approx(ticks)


def test_svg_of_a_long_plan_keeps_every_action_without_numbers_in_few_bytes() -> None:
    plan = make_plan("1f1b", num_workers=32, num_microbatches=128)
    document = to_svg(simulate(plan), plan.placement, title="long")
    picture = Picture(ElementTree.fromstring(document))
    assert int(picture.root.attrib["width"]) < 2700
    assert [sum(kind != "idle" for kind, _, _ in picture.bars(worker)) for worker in range(32)] == [256] * 32
    assert not any(picture.numbers(worker) for worker in range(32))
    assert len(document) < 20 * 32 * 256


def test_svg_of_many_workers_labels_only_as_many_lanes_as_there_is_room_for() -> None:
    picture = picture_of(make_plan("naive", num_workers=256, num_microbatches=1))
    labels = [text for text in picture.root.iter(f"{SVG}text") if str(text.text).startswith("worker")]
    assert [label.text for label in labels[:2]] == ["worker 0, stage 0", "worker 2, stage 2"]
    heights = [float(label.attrib["y"]) for label in labels]
    assert min(after - before for before, after in pairwise(heights)) >= 12
    assert len(picture.lanes) == 256


def test_svg_of_a_title_with_markup_is_valid_and_shows_it() -> None:
    title = "</text><script>&\"'\x00\x1b"
    picture = picture_of(make_plan("naive", num_workers=2, num_microbatches=1), title=title)
    assert picture.texts[0].startswith("</text><script>&\"': makespan 6, bubble 50.0%")
    assert not list(picture.root.iter(f"{SVG}script"))


def test_svg_of_a_long_title_is_wide_enough_for_it() -> None:
    picture = picture_of(make_plan("naive", num_workers=2, num_microbatches=1), title="w" * 200)
    assert int(picture.root.attrib["width"]) > 200 * 9


def luminance(colour: str) -> float:
    """Return the relative luminance of ``#rrggbb`` as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_svg_of_every_op_has_colours_apart_and_numbers_that_can_be_read() -> None:
    picture = picture_of(make_plan("dualpipev", num_workers=4, num_chunks=2, num_microbatches=8))
    style = str(picture.root.findtext(f"{SVG}style"))
    fills = dict(re.findall(r"path\.(\w+)\{stroke:(#\w{6})\}", style))
    inks = dict(re.findall(r"text\.([FBIW]\d)\{fill:(#\w{3})\}", style))
    assert list(fills) == list(inks) == ["F0", "F1", "B0", "B1", "I0", "I1", "W0", "W1"]
    assert len(set(fills.values())) == 8
    for kind, fill in fills.items():
        light, dark = sorted((luminance(fill), luminance({"#000": "#000000", "#fff": "#ffffff"}[inks[kind]])))[::-1]
        assert (light + 0.05) / (dark + 0.05) >= 4.5
