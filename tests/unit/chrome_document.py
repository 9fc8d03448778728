"""A reader of Chrome trace JSON written from the format's description, not from the writer."""

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A complete event; times in nanoseconds."""

    process: str
    thread: str
    name: str
    start: int
    end: int
    category: str
    args: dict[str, Any]


class Document:
    """What a viewer makes of a trace."""

    def __init__(self, text: str) -> None:
        self.raw: dict[str, Any] = json.loads(text, parse_float=str)  # digits as they are written
        self.events: list[dict[str, Any]] = self.raw["traceEvents"]
        named = [event for event in self.events if event["ph"] == "M"]
        self.processes = {e["pid"]: e["args"]["name"] for e in named if e["name"] == "process_name"}
        self.threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in named if e["name"] == "thread_name"}
        self.slices = [self._slice(event) for event in self.events if event["ph"] == "X"]

    def order(self, process: str) -> list[str]:
        """Return the threads of a process as they are sorted."""
        places = {
            self.threads[e["pid"], e["tid"]]: e["args"]["sort_index"]
            for e in self.events
            if e["ph"] == "M" and e["name"] == "thread_sort_index" and self.processes[e["pid"]] == process
        }
        return sorted(places, key=lambda name: places[name])

    def arrows(self) -> list[tuple[Slice, Slice]]:
        """Return the slices that each arrow joins, by id: an end lies in the slice that began last on its thread."""
        ends: defaultdict[tuple[int, str], dict[str, Slice]] = defaultdict(dict)
        for event in self.events:
            if event["ph"] not in ("s", "f"):
                continue
            assert event["ph"] == "s" or event["bp"] == "e"
            key = (event["id"], event["cat"])
            assert event["ph"] not in ends[key], f"two ends of one kind: {event}"
            assert event["ph"] == "s" or "s" in ends[key], "the begin of an arrow stands behind its end"
            ends[key][event["ph"]] = self._slice_at(event)
        return [(pair["s"], pair["f"]) for _, pair in sorted(ends.items())]

    def counter(self, process: str, name: str) -> list[tuple[int, dict[str, int]]]:
        """Return the values of a counter over time."""
        return [
            (nanoseconds(e["ts"]), e["args"])
            for e in self.events
            if e["ph"] == "C" and e["name"] == name and self.processes[e["pid"]] == process
        ]

    def _slice(self, event: dict[str, Any]) -> Slice:
        start = nanoseconds(event["ts"])
        return Slice(
            process=self.processes[event["pid"]],
            thread=self.threads[event["pid"], event["tid"]],
            name=event["name"],
            start=start,
            end=start + nanoseconds(event["dur"]),
            category=event["cat"],
            args=event["args"],
        )

    def _slice_at(self, event: dict[str, Any]) -> Slice:
        thread = (self.processes[event["pid"]], self.threads[event["pid"], event["tid"]])
        now = nanoseconds(event["ts"])
        open_until = [(s, max(s.end, s.start + 1)) for s in self.slices if (s.process, s.thread) == thread]
        begun = [s for s, end in open_until if s.start <= now < end]
        return max(begun, key=lambda s: s.start)


def nanoseconds(microseconds: str) -> int:
    """Return a time that is written with exactly three decimals."""
    assert re.fullmatch(r"-?[0-9]+\.[0-9]{3}", microseconds)
    whole, part = microseconds.split(".")
    sign = -1 if whole.startswith("-") else 1
    return sign * (abs(int(whole)) * 1000 + int(part))


def assert_nothing_overlaps(slices: list[Slice]) -> None:
    """Hold that no thread has two slices at one time."""
    threads: defaultdict[tuple[str, str], list[Slice]] = defaultdict(list)
    for one in slices:
        threads[one.process, one.thread].append(one)
    for own in threads.values():
        for before, after in pairwise(sorted(own, key=lambda one: (one.start, one.end))):
            assert before.end <= after.start, (before, after)
