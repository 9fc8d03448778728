"""Where the time of a run's workers went, by cause. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.schedule.simulate import Timeline
from coordinator.trace.chrome import BUSY
from coordinator.trace.measured import counted_steps
from coordinator.trace.timeline import Trace, Track

CAUSES = ("activation", "gradient", "send", "data", "command", "reduce", "checkpoint", "other")
"""What a worker waits for; what lies between two spans counts as other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """One worker's mean step in seconds."""

    worker: int
    step: float
    """From the end of a step to the end of the next one."""
    busy: Mapping[str, float]
    """By op: F B I W and step, which is its update."""
    idle: Mapping[str, float]
    """By cause, all of `CAUSES`."""
    planned_busy: float
    """Share of a step in which the plan lets it compute, with the times that were measured of its actions."""

    @property
    def busy_share(self) -> float:
        """Part of the step in which it computed."""
        return sum(self.busy.values()) / self.step


def shares_of(trace: Trace, expected: Timeline) -> tuple[Shares, ...]:
    """Return where each worker's time went in the steps of ``trace`` that count, first steps left out.

    Args:
        trace: what was measured; `measured_costs` takes it.
        expected: a step of one replica's plan with the costs that were measured.
    """
    steps = frozenset(counted_steps(trace))
    told = []
    for worker in trace.workers:
        by_name: defaultdict[str, float] = defaultdict(float)
        ends: dict[int, float] = {}
        starts: dict[int, float] = {}
        for span in worker.spans:
            if span.track is Track.COMPUTE and span.step in steps:
                by_name[span.name] += span.end - span.start
                starts[span.step] = min(starts.get(span.step, span.start), span.start)
                ends[span.step] = max(ends.get(span.step, span.end), span.end)
        whole = sum(ends[step] - starts[step] for step in starts)
        by_name["other"] += max(0.0, whole - sum(by_name.values()))
        count = len(starts)
        told.append(
            Shares(
                worker=worker.worker,
                step=whole / count,
                busy={name: seconds / count for name, seconds in sorted(by_name.items()) if name in BUSY},
                idle={cause: by_name.get(cause, 0.0) / count for cause in CAUSES},
                planned_busy=1 - expected.bubbles[worker.worker % len(expected.bubbles)],
            )
        )
    return tuple(told)
