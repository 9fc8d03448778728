"""Where output goes: answers to stdout, remarks and errors to stderr."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

SCHEMA = "takt/v1"
_PIPE_WIDTH = 4096
"""Columns where no terminal shows them: so many that scripts see one line for each row of a table."""


def stdout() -> Console:
    """Return a console on stdout; plain text where that is no terminal."""
    return _console(stderr=False)


def stderr() -> Console:
    """Return a console on stderr; plain text where that is no terminal."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def print_line(text: str) -> None:
    """Print one line of an answer as it is."""
    print(text, flush=True)


def print_remark(text: str) -> None:
    """Print one line that is not part of the answer."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print ``document``, which must be the only thing on stdout, with its schema first.

    Raises:
        ValueError: it holds a number that JSON does not know.
    """
    print_line(json.dumps({"schema": SCHEMA, **document}, indent=2, allow_nan=False, ensure_ascii=False))
