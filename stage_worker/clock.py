"""How this process's clock stands to the coordinator's."""

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path

_MOST_READINGS = 64
"""Readings that count: clocks of two machines drift apart, by microseconds a second."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/ns/time")


def clock_name() -> str:
    """Return a name that processes share whose ``time.monotonic`` is one clock; without any, one of this process's."""
    try:
        return f"{_BOOT_ID.read_text().strip()}/{os.readlink(_TIME_NAMESPACE)}"
    except OSError:
        return f"process {os.getpid()} {os.urandom(8).hex()}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What to add to the own clock's seconds to get the other's, and how far that may be off."""

    offset_seconds: float
    error_seconds: float


class ClockOffset:
    """Estimates the offset to another clock from times that were sent, received, answered and returned.

    The way there and the way back take unknown shares of the time that both took, so an offset is known to half of
    that; the reading with the shortest way counts. As in the Network Time Protocol, RFC 5905, section 8.
    """

    def __init__(self, name: str) -> None:
        """Estimate for the own clock of ``name``."""
        self.name = name
        self._readings: deque[Reading] = deque(maxlen=_MOST_READINGS)

    def add(self, *, sent: float, received: float, answered: float, returned: float, name: str) -> None:
        """Take a reading.

        Args:
            sent: by the own clock.
            received: by the other one, as is ``answered``.
            answered: when the answer went out.
            returned: by the own clock.
            name: of the other clock; where it is the own one there is nothing to estimate.
        """
        if name == self.name:
            self._readings.append(Reading(0.0, 0.0))
            return
        way = max(0.0, (returned - sent) - (answered - received))
        self._readings.append(Reading(((received - sent) + (answered - returned)) / 2, way / 2))

    @property
    def best(self) -> Reading | None:
        """The reading that is off least; None before the first."""
        return min(tuple(self._readings), key=lambda reading: reading.error_seconds, default=None)
