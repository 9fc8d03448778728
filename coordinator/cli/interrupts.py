"""Ctrl-C and its like, counted instead of thrown, so that stopping can itself be waited for."""

import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], object]


@contextmanager
def stops_interrupt() -> Iterator[None]:
    """While entered, SIGTERM and SIGHUP raise KeyboardInterrupt as Ctrl-C does, so that child processes are ended."""
    former = _handle(signal.default_int_handler, (signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        _restore(former)


def _handle(handler: _Handler, numbers: Iterable[signal.Signals]) -> dict[signal.Signals, Any]:
    """Set a handler; return the former ones. What nohup has the process ignore stays ignored."""
    heard = [n for n in numbers if n is not signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heard}


def _restore(former: Mapping[signal.Signals, Any]) -> None:
    for number, handler in former.items():
        signal.signal(number, handler)


class Interrupts:
    """While entered, SIGINT, SIGTERM and SIGHUP only count, but for a SIGHUP that is ignored; main thread only."""

    def __init__(self) -> None:
        self.count = 0
        """How often the process was asked to stop."""

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        # A sleep goes on after a handler; a select on this pipe ends.
        self._former_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._former = _handle(self._count, _SIGNALS)
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._former)
        signal.set_wakeup_fd(self._former_fd)
        os.close(self._reader)
        os.close(self._writer)

    def pause(self, seconds: float) -> None:
        """Wait that long, or until any signal arrives."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            os.read(self._reader, 4096)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
