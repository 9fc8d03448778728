"""Pictures of traces, read back from their XML."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from coordinator.schedule.plan import make_plan
from coordinator.schedule.simulate import simulate
from coordinator.trace.picture import NoStepError, to_picture
from coordinator.trace.planned import planned_trace, repeated
from coordinator.trace.timeline import Span, Trace, Track, WorkerTrace

SVG = "{http://www.w3.org/2000/svg}"
GAP = 1  # pixel between two actions
WIDTH = 720  # of lanes with few actions
REASONS = ("activation", "gradient", "send", "data", "command", "reduce", "checkpoint", "other")


def span(name: str, start: float, end: float, **more: Any) -> Span:
    return Span(track=Track.COMPUTE, name=name, start=start, end=end, **({"step": 1} | more))


def trace_of(*workers: tuple[Span, ...], stages: tuple[tuple[int, ...], ...] | None = None) -> Trace:
    return Trace(
        job="bert",
        schedule="gpipe",
        origin=0.0,
        clock_error_seconds=0.0,
        workers=tuple(
            WorkerTrace(worker=w, dp_rank=0, stages=stages[w] if stages else (w,), spans=own, samples=())
            for w, own in enumerate(workers)
        ),
    )


class Picture:
    """An SVG document."""

    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text)
        self.texts = [str(text.text) for text in self.root.iter(f"{SVG}text")]
        self.lanes = [group for group in self.root.iter(f"{SVG}g") if group.get("class") == "lane"]

    def bars(self, lane: int) -> list[tuple[str, float, float]]:
        """Return kind, start and end of what is drawn in a lane, in pixels, from left to right."""
        found = []
        for path in self.lanes[lane].findall(f"{SVG}path"):
            for x, width in re.findall(r"M([\d.]+)-4h([\d.]+)", path.attrib["d"]):
                found.append((path.attrib["class"], float(x), float(x) + float(width)))
        return sorted(found, key=lambda bar: bar[1])


TWO = (
    (
        span("F", 5.0, 5.1, stage=0, microbatch=0),
        span("gradient", 5.1, 5.5, stage=0, microbatch=0),
        span("B", 5.5, 5.7, stage=0, microbatch=0),
        span("step", 5.7, 5.8),
    ),
    (
        span("activation", 5.0, 5.2, stage=1, microbatch=0),
        span("F", 5.2, 5.3, stage=1, microbatch=0),
        span("B", 5.3, 5.5, stage=1, microbatch=0),
        span("reduce", 5.5, 5.7),
        span("step", 5.7, 5.8),
    ),
)


def test_picture_draws_actions_and_what_is_waited_for_where_they_were() -> None:
    picture = Picture(to_picture(trace_of(*TWO), first=1, last=1))
    per_second = WIDTH / 0.8
    drawn = [
        [(kind, round(start / per_second, 3), round((end + GAP * (kind[0] in "FB" or kind == "step")) / per_second, 3))]
        for lane in (0, 1)
        for kind, start, end in picture.bars(lane)
    ]
    assert [bar for bars in drawn for bar in bars] == [
        ("F0", 0, 0.1),
        ("gradient", 0.1, 0.5),
        ("B0", 0.5, 0.7),
        ("step", 0.7, 0.8),
        ("activation", 0, 0.2),
        ("F0", 0.2, 0.3),
        ("B0", 0.3, 0.5),
        ("reduce", 0.5, 0.7),
        ("step", 0.7, 0.8),
    ]
    assert picture.texts[0] == "bert, gpipe, step 1"
    assert picture.texts[1:7] == [
        "forward",
        "backward",
        "update",
        "wait for activation",
        "wait for gradient",
        "wait for all workers",
    ]
    assert "measured: 800 ms, idle 50.0%" in picture.texts
    assert picture.texts.count("50.0%") == 2  # 0.4 of 0.8 s on each


def test_picture_gives_every_reason_a_colour_of_its_own_and_other_words_that_of_other() -> None:
    waits = (span(name, k, k + 1) for k, name in enumerate((*REASONS, "F", "magic")))
    own = (*waits, span("W", 20, 21, stage=0))
    picture = Picture(to_picture(trace_of(own), first=1, last=1))
    kinds = [kind for kind, _, _ in picture.bars(0)]
    assert kinds == [*REASONS, "other", "other", "W0"]  # an F of no stage is no action
    style = str(picture.root.findtext(f"{SVG}style"))
    colours = dict(re.findall(r"\.(\w+)\{stroke:(#\w{6})\}", style))
    assert len({colours[kind] for kind in (*REASONS, "W0", "step")}) == 10


def test_picture_of_a_plan_above_has_one_scale_and_the_same_clock() -> None:
    plan = make_plan("gpipe", num_workers=2, num_microbatches=1)
    ideal = planned_trace(
        simulate(plan), plan.placement, job="bert", schedule="gpipe", unit_seconds=0.1, comm=0.0, num_replicas=1
    )
    planned = repeated(ideal, {1: 105.0}, origin=-100.0)
    picture = Picture(to_picture(trace_of(*TWO), first=1, last=1, planned=planned))
    headings = [text for text in picture.texts if text.startswith(("planned", "measured"))]
    assert headings == ["planned: 600 ms, idle 50.0%", "measured: 800 ms, idle 50.0%"]
    assert len(picture.lanes) == 4
    # 90 pixels a tenth of a second
    assert [picture.bars(0)[0], picture.bars(2)[0], picture.bars(1)[-1]] == [
        ("F0", 0, 90 - GAP),
        ("F0", 0, 90 - GAP),
        ("reduce", 360, 540),
    ]


def test_picture_of_some_steps_leaves_the_others_out_and_counts_no_time_between_planned_ones() -> None:
    steps = [tuple(replace(s, step=k, start=s.start + k, end=s.end + k) for k in (1, 2, 3) for s in own) for own in TWO]
    picture = Picture(to_picture(trace_of(*steps), first=2, last=3))
    assert picture.texts[0] == "bert, gpipe, steps 2 to 3"
    assert [kind for kind, _, _ in picture.bars(0)] == ["F0", "gradient", "B0", "step"] * 2
    assert "measured: 1600 ms, idle 50.0%" in picture.texts
    early = (span("step", 0, 2), span("step", 2, 5, step=2)), (span("other", 0, 4), span("step", 4, 5, step=2))
    assert "measured: 5000 ms, idle 40.0%" in Picture(to_picture(trace_of(*early), first=1, last=2)).texts
    seconds = [tuple(replace(s, start=s.start * 20, end=s.end * 20) for s in own) for own in steps]
    assert "s" in Picture(to_picture(trace_of(*seconds), first=1, last=3)).texts


def test_picture_tells_chunks_apart_and_sorts_workers() -> None:
    own = (span("F", 0, 1, stage=0, microbatch=0), span("F", 1, 2, stage=2, microbatch=0))
    other = (span("F", 1, 2, stage=1, microbatch=0), span("F", 2, 3, stage=3, microbatch=0))
    trace = trace_of(own, other, stages=((0, 2), (1, 3)))
    picture = Picture(to_picture(replace(trace, workers=trace.workers[::-1]), first=1, last=1))
    assert [kind for kind, _, _ in picture.bars(0)] == ["F0", "F1"]
    labels = [text for text in picture.texts if text.startswith("worker")]
    assert labels == ["worker 0, stages 0, 2", "worker 1, stages 1, 3"]


def test_picture_of_steps_that_are_not_there_says_which_are() -> None:
    own = tuple(span("step", k, k + 1, step=k) for k in (1, 2, 3, 7, 9, 10))
    with pytest.raises(NoStepError, match=r"steps 4 to 6: not measured .*holds 1 to 3 and 7 and 9 to 10"):
        to_picture(trace_of(own), first=4, last=6)
    with pytest.raises(NoStepError, match="step 3: not measured on every worker"):
        to_picture(trace_of(own, own[:2]), first=3, last=3)
    with pytest.raises(NoStepError, match=r"step 7: not planned .*holds 1 to 2"):
        to_picture(trace_of(own), first=7, last=7, planned=trace_of(own[:2]))


def test_picture_of_markup_in_a_name_is_valid() -> None:
    picture = Picture(to_picture(replace(trace_of(*TWO), job="</text><b>&\x00"), first=1, last=1))
    assert picture.texts[0] == "</text><b>&, gpipe, step 1"


def test_picture_of_many_reasons_puts_no_two_words_of_the_legend_on_one_place() -> None:
    own = tuple(span(name, k, k + 1) for k, name in enumerate((*REASONS, "step")))
    ops = tuple(span(op, 10 + k, 11 + k, stage=0, microbatch=0) for k, op in enumerate("FBIW"))
    picture = Picture(to_picture(trace_of(own + ops), first=1, last=1))
    legend = next(group for group in picture.root.iter(f"{SVG}g") if group.get("class") == "legend")
    words = [(float(t.get("y", 0)), float(t.get("x", 0)), str(t.text)) for t in legend.findall(f"{SVG}text")]
    assert len(words) == 13
    assert len({y for y, _, _ in words}) > 1
    for before, after in pairwise(words):
        if before[0] == after[0]:
            assert before[1] + 6 * len(before[2]) < after[1]
    assert all(x + 6 * len(word) < int(picture.root.attrib["width"]) - 16 for _, x, word in words)
    lowest = max(y for y, _, _ in words) + 54
    heading = next(t for t in picture.root.iter(f"{SVG}text") if str(t.text).startswith("measured"))
    assert float(heading.attrib["y"]) - lowest >= 12
