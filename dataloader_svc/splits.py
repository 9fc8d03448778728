"""The splits of a task and their rows as text."""

import enum
from dataclasses import dataclass


class SplitName(enum.StrEnum):
    """The splits that a task may have, in the order they are told."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """All rows of one split, in file order."""

    first: tuple[str, ...]
    """The sentence of each row, or the first one of its pair."""
    second: tuple[str, ...] | None
    """The second sentence of each row's pair; None where the task has single sentences."""
    labels: tuple[int, ...] | None
    """Label id of each row; None where the split has no labels."""

    def __len__(self) -> int:
        return len(self.first)

    def head(self, count: int) -> "SplitRows":
        """Return the first ``count`` rows, or all where there are fewer."""
        return SplitRows(
            first=self.first[:count],
            second=None if self.second is None else self.second[:count],
            labels=None if self.labels is None else self.labels[:count],
        )
