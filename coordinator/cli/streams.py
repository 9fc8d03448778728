"""The standard streams: that there are three of them, whoever started us."""

import os
import sys


def fill_closed_streams() -> None:
    """Give a standard stream that was closed before we began somewhere to go.

    Else the next file that is opened takes its number, and what is printed for people ends up in it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            os.set_inheritable(descriptor, True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def discard_output() -> None:
    """Send what is still to be written to nowhere, after a write has failed; the interpreter flushes at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
