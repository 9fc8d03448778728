"""One service process: started, heard until it is ready, ended."""

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from takt.rpc.lifecycle import Announcement, parse_announcement

_TAIL_BYTES = 8192
_TAIL_LINES = 20


class Child:
    """A service in a session of its own, so that the terminal's Ctrl-C reaches only us.

    Its stdin is a pipe that we hold: when we are gone, whatever the cause, it reads the end and stops.
    Its stderr, and stdout after the announcement, go to ``log``.
    """

    def __init__(self, argv: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        self._announced: queue.SimpleQueue[Announcement] = queue.SimpleQueue()
        self._announcement: Announcement | None = None
        with log.open("ab") as stderr:
            self._log_start = stderr.tell()
            self._process = subprocess.Popen(
                argv,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, name=f"stdout-{log.stem}", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Its process id, also that of its process group."""
        return self._process.pid

    @property
    def announcement(self) -> Announcement | None:
        """What it said when it was ready; None before."""
        with suppress(queue.Empty):
            self._announcement = self._announced.get_nowait()
        return self._announcement

    def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to stop."""
        if self.exit_code() is None:
            self._process.terminate()

    def kill(self) -> None:
        """End it and its process group at once, and reap it."""
        if self.exit_code() is None:  # once it is reaped, its id may be another's
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Let go of the pipes of a process that has ended."""
        self._process.wait()
        with suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._listener.join(timeout=1)

    def log_tail(self) -> str:
        """Return the last lines that this process, and not one before it, wrote to its log."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, size - _TAIL_BYTES))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def _listen(self) -> None:
        stdout = self._process.stdout
        if stdout is None:
            return
        with stdout, self.log.open("a") as log:
            for line in stdout:
                announcement = parse_announcement(line)
                if announcement is not None:
                    self._announced.put(announcement)
                log.write(line)
                log.flush()
