"""The one table from what went wrong to exit code and message."""

import sys
import traceback
from collections.abc import Mapping

import grpc
from takt.rpc.errors import AddressInUseError, ListenError, UnreachableError

from coordinator.checkpoints import DamagedCheckpointError, NoCheckpointError
from coordinator.cli.client import CallError
from coordinator.cli.console import print_remark
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.streams import discard_output
from coordinator.job_id import JobIdError
from coordinator.listing import ListingError
from coordinator.problem import SpecError
from coordinator.schedule.actions import PlanError
from coordinator.store import StoreError

STATUS_CODES: Mapping[grpc.StatusCode, ExitCode] = {
    grpc.StatusCode.INVALID_ARGUMENT: ExitCode.INVALID,
    grpc.StatusCode.OUT_OF_RANGE: ExitCode.INVALID,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ExitCode.INVALID,  # a message over the size limit
    grpc.StatusCode.NOT_FOUND: ExitCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS: ExitCode.CONFLICT,
    grpc.StatusCode.FAILED_PRECONDITION: ExitCode.CONFLICT,
    grpc.StatusCode.ABORTED: ExitCode.CONFLICT,
    grpc.StatusCode.UNAUTHENTICATED: ExitCode.NOT_AUTHORISED,
    grpc.StatusCode.PERMISSION_DENIED: ExitCode.NOT_AUTHORISED,
}
"""Any other status means that the coordinator could not answer: UNREACHABLE."""

EXCEPTIONS: Mapping[type[Exception], ExitCode] = {
    ListenError: ExitCode.INVALID,
    AddressInUseError: ExitCode.UNREACHABLE,
    UnreachableError: ExitCode.UNREACHABLE,
    StoreError: ExitCode.UNREACHABLE,
    NoCheckpointError: ExitCode.NOT_FOUND,
    DamagedCheckpointError: ExitCode.INVALID,
    SpecError: ExitCode.INVALID,
    JobIdError: ExitCode.INVALID,
    ListingError: ExitCode.INVALID,
    PlanError: ExitCode.INVALID,
    OSError: ExitCode.INVALID,
}
"""Refusals of other rooms, and of the system, by type; a subclass has its nearest listed ancestor's code."""


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code for ``error``; INTERNAL where nothing is listed, which means a fault of the program."""
    match error:
        case CliError():
            return error.code
        case CallError():
            return STATUS_CODES.get(error.code, ExitCode.UNREACHABLE)
    return next((EXCEPTIONS[kind] for kind in type(error).__mro__ if kind in EXCEPTIONS), ExitCode.INTERNAL)


def report(error: Exception) -> ExitCode:
    """Print ``error: ...`` on stderr, with a traceback only for a fault of the program; return the exit code."""
    code = exit_code_of(error)
    if isinstance(error, OSError):
        discard_output()  # it may be stdout that cannot be written
    if isinstance(error, SpecError):
        for problem in error.problems:
            print_remark(f"error: {problem}")
    elif code is ExitCode.INTERNAL:
        traceback.print_exception(error, file=sys.stderr)
        print_remark(f"error: this is a fault of takt, please report it: {type(error).__name__}: {error}")
    else:
        print_remark(f"error: {error}")
    return code
