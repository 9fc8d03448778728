"""An executor's tie to its agent: the line of work that comes through stdin, and death when stdin ends."""

import ctypes
import os
import signal
import sys
import threading
from queue import SimpleQueue

_PR_SET_PDEATHSIG = 1


class Lifeline:
    """Reads stdin from the start, so that the end of the agent is noticed in every phase."""

    def __init__(self) -> None:
        self._lines: SimpleQueue[str] = SimpleQueue()
        if sys.platform == "linux":
            # The thread below does not run in a stopped process, nor where the interpreter is held.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        threading.Thread(target=self._read, name="lifeline", daemon=True).start()

    def work(self) -> str:
        """Wait for the one line of work."""
        return self._lines.get()

    def _read(self) -> None:
        received = b""
        told = False
        while block := os.read(0, 1 << 16):
            if not told:
                received += block
                line, end, _ = received.partition(b"\n")
                if end:
                    self._lines.put(line.decode())
                    told = True
        _end_group()


def _end_group() -> None:
    """End this process and all that it started, where it leads a group of its own."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)
