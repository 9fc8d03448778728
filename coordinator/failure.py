"""Which of several faults ended a run."""

import enum
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.records import JobError


class FaultKind(enum.IntEnum):
    """What sort of fault it is; the lower explains the higher, whichever was heard of first."""

    EXCEPTION = 0
    """A worker's own exception."""
    TOLD = 1
    """A worker's exception about a stage that another one holds: all workers raise what one of them has voted."""
    KILLED = 2
    """A process ended by a signal, stuck, silent, never started, or gone without a word."""
    COORDINATOR = 3
    """What the coordinator itself met: a limit, the data service, a broken protocol."""
    LOST = 4
    """An agent that is not heard of any more."""
    PEER = 5
    """A worker that lost its peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One sign that a run cannot go on."""

    kind: FaultKind
    error: JobError


def root_cause(faults: Sequence[Fault]) -> JobError:
    """Return the error of the fault that explains the others: the lowest kind, of equals the first heard of."""
    return min(faults, key=lambda fault: fault.kind).error


def unsaved(step: int, reason: str) -> JobError:
    """Return what ends a job whose last checkpoint could not be written."""
    message = (
        f"the checkpoint of step {step}, the last one, could not be written: {reason}; "
        "make room for it, then submit the job again under its id: it goes on after its last checkpoint"
    )
    return JobError(type="checkpoint", message=message, step=step)


def signal_name(number: int) -> str:
    """Return a signal as people know it, such as ``signal 9 (SIGKILL)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
