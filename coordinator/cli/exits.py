"""Exit codes of `takt`, and the error that carries one."""

import enum


class ExitCode(enum.IntEnum):
    """What the shell sees; public, see the contract."""

    SUCCESS = 0
    JOB_FAILED = 1
    INVALID = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    NOT_AUTHORISED = 6
    JOB_CANCELLED = 7
    INTERRUPTED = 130
    NOT_READ = 141
    INTERNAL = 70


class CliError(Exception):
    """A refusal of the command line itself; the text names the value, the rule and the fix."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code
