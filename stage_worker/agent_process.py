"""One executor process, and the process group that it leads."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from stage_worker.record import Record, RecordReader, Snapshot

_TAIL_BYTES = 8192
_TAIL_LINES = 30


class ExecutorProcess:
    """A child that waits on its stdin for one line of work, and ends when its stdin closes."""

    def __init__(self, process: asyncio.subprocess.Process, reader: RecordReader) -> None:
        """Use ``spawn``."""
        self._process = process
        self._reader = reader

    @classmethod
    async def spawn(cls, command: Sequence[str], *, log: Path | None) -> "ExecutorProcess":
        """Start ``command --record-fd N`` as the leader of a new process group.

        Args:
            command: program and arguments.
            log: where its output goes; without one it shares the agent's stderr until it learns its job.

        Raises:
            OSError: it cannot be started.
        """
        record = Record.create()
        try:
            with contextlib.ExitStack() as files:
                output = files.enter_context(log.open("ab")) if log is not None else 2  # 2: the agent's stderr
                process = await asyncio.create_subprocess_exec(
                    *command,
                    "--record-fd",
                    str(record.descriptor),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=(record.descriptor,),
                    start_new_session=True,
                )
        finally:
            record.close_descriptor()
        return cls(process, RecordReader(record))

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self._process.returncode is None

    def snapshot(self) -> Snapshot:
        """Return what its record says; also after its death."""
        return self._reader.read()

    def reader(self) -> RecordReader:
        """Return its record, for another thread to read."""
        return self._reader

    async def hand_over(self, line: str) -> None:
        """Give it its work. Where it is dead already, its end will say so."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self._process.stdin.drain()

    def kill(self) -> None:
        """Kill its whole group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> int:
        """Wait for its end, kill what it left behind, and return its code, negative for a signal."""
        returncode = await self._process.wait()
        self.kill()
        return returncode


def tail(path: Path) -> str:
    """Return the last lines of a log; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
