"""Log lines of a job's workers, as they are written. Reads are small and made off the event loop."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.25
READ_BYTES = 256 * 1024
TAIL_BYTES = 4 * 1024 * 1024
"""How much of a log's end is looked at for its last lines."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    text: str
    """Without its end."""
    end: int
    """Bytes of the log up to the end of this line; where a reader goes on behind it."""


class LogFile:
    """One worker's log, read forward from wherever it was left."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """Read behind the first ``offset`` bytes."""
        self._path = path
        self._offset = offset
        self._rest = b""

    def skip_to_tail(self, num_lines: int) -> list[Line]:
        """Return the last lines that are complete, and go on behind them."""
        size = self._path.stat().st_size if self._path.is_file() else 0
        self._offset = max(0, size - TAIL_BYTES)
        skipped = self._offset > 0
        lines: deque[Line] = deque(maxlen=num_lines)
        while fresh := self.read():
            lines.extend(fresh[1:] if skipped else fresh)
            skipped = False
        return list(lines)

    def read(self) -> list[Line]:
        """Return lines that were completed since the last call; none where nothing is new."""
        lines: list[Line] = []
        while not lines:
            try:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    block = file.read(READ_BYTES)
            except FileNotFoundError:
                return []
            if not block:
                return []
            end = self._offset - len(self._rest)
            self._offset += len(block)
            *complete, self._rest = (self._rest + block).split(b"\n")
            for line in complete:
                end += len(line) + 1
                lines.append(Line(line.decode(errors="replace"), end))
        return lines

    def last(self) -> list[Line]:
        """Return what is left where the log does not end with a line end."""
        rest, self._rest = self._rest, b""
        return [Line(rest.decode(errors="replace"), self._offset)] if rest else []


async def read_logs(
    folder: Path,
    workers: Callable[[], Awaitable[Iterable[int]]],
    *,
    tail: int | None,
    positions: Mapping[int, int],
    is_over: Callable[[], Awaitable[bool]] | None,
) -> AsyncIterator[tuple[int, Line]]:
    """Yield worker and line.

    Args:
        folder: where the logs are.
        workers: whose logs are wanted; asked again while following, for workers may come late.
        tail: only so many last lines of each, of those that are there at the start.
        positions: bytes of a worker's log that are not wanted, where it is known better than by ``tail``.
        is_over: whether the job has ended; where given, lines are followed until then.
    """
    files: dict[int, LogFile] = {}
    while True:
        over = is_over is None or await is_over()  # asked before reading, so that the last lines are not missed
        for worker in await workers():
            known = worker in files
            offset = positions.get(worker, 0)
            file = files.setdefault(worker, LogFile(folder / f"worker-{worker}.log", offset=offset))
            if not known and tail is not None and worker not in positions:
                for line in await asyncio.to_thread(file.skip_to_tail, tail):
                    yield worker, line
            while lines := await asyncio.to_thread(file.read):
                for line in lines:
                    yield worker, line
        if over:
            for worker, file in files.items():
                for line in file.last():
                    yield worker, line
            return
        await asyncio.sleep(POLL_SECONDS)
