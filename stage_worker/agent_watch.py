"""Two of the three clocks: does the executor's interpreter run, and does its computation get on.

Pure. A watch counts the time for which it *saw* a figure stand still, in pieces
of at most ``_LONGEST_GAP_SECONDS``: when the whole machine slept, or the agent
itself was stopped, the executor is not to blame for the gap.
"""

import enum
from dataclasses import dataclass, replace

from stage_worker.record import Snapshot

START_SECONDS = 120.0
"""How long an executor may take to its first pulse: it may have to import torch first, on a busy machine."""

_LONGEST_GAP_SECONDS = 2.0


class Verdict(enum.Enum):
    """What is wrong with an executor."""

    SILENT = enum.auto()
    """Its pulse stands still: stopped, or its interpreter is held."""
    STUCK = enum.auto()
    """One computation takes too long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and its reason for a person."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What was seen of one executor so far."""

    lease_seconds: float
    step_timeout_seconds: float
    seen_at: float | None = None
    """When it was last looked at."""
    pulse: float = 0.0
    silent_seconds: float = 0.0
    """How long ``pulse`` was seen to stand still."""
    computing_since: float | None = None
    """When the present computation began; None while the engine waits for something."""
    computing_seconds: float = 0.0
    """How long that computation was seen to last."""

    def observe(self, snapshot: Snapshot, now: float) -> tuple["Watch", Finding | None]:
        """Return the watch after one more look, and what is wrong, if anything is."""
        gap = 0.0 if self.seen_at is None else min(now - self.seen_at, _LONGEST_GAP_SECONDS)
        activity, _ = snapshot.account
        computing_since = snapshot.since if activity.is_compute else None
        watch = replace(
            self,
            seen_at=now,
            pulse=snapshot.pulse,
            silent_seconds=self.silent_seconds + gap if snapshot.pulse == self.pulse else 0.0,
            computing_since=computing_since,
            computing_seconds=(
                self.computing_seconds + gap
                if computing_since is not None and computing_since == self.computing_since
                else 0.0
            ),
        )
        return watch, watch._finding(snapshot)

    def _finding(self, snapshot: Snapshot) -> Finding | None:
        if not self.pulse and self.silent_seconds > START_SECONDS:
            return Finding(Verdict.SILENT, f"it has not begun within {START_SECONDS:g} s")
        if self.pulse and self.silent_seconds > self.lease_seconds:
            return Finding(
                Verdict.SILENT,
                f"no pulse for {self.silent_seconds:.1f} s (limits.lease_seconds is {self.lease_seconds:g}): "
                "the process is stopped, or its interpreter is held",
            )
        if self.computing_seconds > self.step_timeout_seconds:
            activity, stage = snapshot.account
            of_stage = "" if stage is None else f" of stage {stage}"
            return Finding(
                Verdict.STUCK,
                f"the {activity.name.lower().replace('_', ' ')}{of_stage} after command {snapshot.seq} computed for "
                f"{self.computing_seconds:.1f} s (limits.step_timeout_seconds is {self.step_timeout_seconds:g})",
            )
        return None
