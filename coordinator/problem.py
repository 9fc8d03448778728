"""What is wrong with a job, said so that a person can act on it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

_KEY_FIRST = re.compile(r"((?:model|data|parallel|schedule|train|eval|predict)(?:\.\w+)+):? (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a job."""

    key: str
    """Dotted path of the key in the job file, ``parallel.pp``; empty where it is about the whole file."""
    message: str
    """The value, the rule and the fix, in one line."""
    where: str = ""
    """Where the value was written, ``job.yaml:12``; empty where that is unknown."""
    figure: str = ""
    """Lines that show the place, for below the message; empty where words do."""

    @classmethod
    def told(cls, section: str, text: str) -> Self:
        """Return what another room says against ``section``: of the key that ``text`` begins with, if it does."""
        found = _KEY_FIRST.fullmatch(text)
        return cls(section, text) if found is None else cls(found[1], found[2])

    def __str__(self) -> str:
        text = _on_one_line(": ".join(part for part in (self.where, self.key, self.message) if part))
        return "\n".join((text, *map(_on_one_line, self.figure.splitlines())))


def _on_one_line(text: str) -> str:
    """Return ``text`` as it can be shown: keys are quoted as written, and none may start a line or steer a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class SpecError(ValueError):
    """A job that cannot be run as it is written. Its text is one line a problem, with their figures below."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
