"""How a service process says that it is ready, and how it learns that it should stop."""

import asyncio
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

_ANNOUNCEMENT = re.compile(r"(?P<service>\S+) (?:listening on (?P<address>\S+)|ready), metrics on (?P<metrics>\S+)")


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a service printed when it was ready."""

    service: str
    address: str | None
    """Where its gRPC server listens, host:port; None for a service that only dials."""
    metrics_address: str
    """Where /metrics, /livez and /readyz are, host:port."""

    def __str__(self) -> str:
        state = "ready" if self.address is None else f"listening on {self.address}"
        return f"{self.service} {state}, metrics on {self.metrics_address}"


def announce(service: str, address: str | None, metrics_address: str) -> None:
    """Print on stdout, in one line, that the service is ready."""
    print(Announcement(service, address, metrics_address), flush=True)


def parse_announcement(line: str) -> Announcement | None:
    """Read back a line that ``announce`` printed; None for any other line."""
    found = _ANNOUNCEMENT.fullmatch(line.strip())
    return None if found is None else Announcement(found["service"], found["address"], found["metrics"])


def until_stopped(*, exit_with_stdin: bool) -> asyncio.Future[str]:
    """Return what resolves to the reason, in words, once the process is asked to stop.

    It listens from the call on, so call it before ``announce`` and await it after. Asked again while it
    stops, the process does not die half-way: signals stay caught until the event loop closes.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[str] = loop.create_future()

    def resolve(reason: str) -> None:
        if not stopped.done():
            stopped.set_result(reason)

    def stdin_ended() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(resolve, "stdin was closed")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, resolve, f"{number.name} was received")
    if exit_with_stdin:
        stdin_closed(stdin_ended)
    return stopped


def stdin_closed(callback: Callable[[], None]) -> None:
    """Call ``callback`` once, from a daemon thread, when stdin has ended; what it still brings is dropped."""

    def drain() -> None:
        # os.read, not sys.stdin: a daemon thread inside a buffered read breaks the interpreter's shutdown.
        try:
            while os.read(0, 65536):
                pass
        except OSError as error:
            print(f"stdin cannot be read, taken as closed: {error}", file=sys.stderr)
        callback()

    threading.Thread(target=drain, name="stdin-watch", daemon=True).start()
