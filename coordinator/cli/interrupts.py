"""Ctrl-C and its like, counted instead of thrown, so that stopping can itself be waited for."""

import os
import select
import signal
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, SIGINT, SIGTERM and SIGHUP only count; main thread only."""

    def __init__(self) -> None:
        self.count = 0
        """How often the process was asked to stop."""

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        # A sleep goes on after a handler; a select on this pipe ends.
        self._former_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._former = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        os.close(self._reader)
        os.close(self._writer)

    def pause(self, seconds: float) -> None:
        """Wait that long, or until any signal arrives."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            os.read(self._reader, 4096)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
