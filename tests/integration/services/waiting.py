"""Waiting for what other processes do, never for longer than a limit."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.05


def wait_until(what: str, look: Callable[[], T | None], *, limit_seconds: float) -> T:
    """Return the first answer of ``look`` that is neither None nor False.

    Raises:
        TimeoutError: there was none in time; the text says what was waited for.
    """
    deadline = time.monotonic() + limit_seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit_seconds:g} s")
        time.sleep(_POLL_SECONDS)
