"""The splits of a task and their rows as text."""

import enum
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace


class SplitName(enum.StrEnum):
    """The splits that a task may have, in the order they are told."""

    TRAIN = "train"
    VALIDATION = "validation"
    VALIDATION_MATCHED = "validation_matched"
    VALIDATION_MISMATCHED = "validation_mismatched"
    TEST = "test"
    TEST_MATCHED = "test_matched"
    TEST_MISMATCHED = "test_mismatched"
    AX = "ax"
    """GLUE's diagnostic set, which a model of MNLI predicts."""

    @property
    def on_hub(self) -> str:
        """What the data set on the Hub calls it."""
        return "test" if self is SplitName.AX else self.value


DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """All rows of one split, in file order."""

    first: tuple[str, ...]
    """The sentence of each row, or the first one of its pair."""
    second: tuple[str, ...] | None
    """The second sentence of each row's pair; None where the task has single sentences."""
    labels: tuple[int, ...] | tuple[float, ...] | None
    """Label of each row, an id or a number; None where the split has no labels."""
    num_malformed: int = 0
    """Lines of the file that were left out, because they do not fit it."""

    def __len__(self) -> int:
        return len(self.first)

    def digest(self) -> str:
        """Return the digest of all texts and labels; rows that are equal have equal ones, wherever they come from."""
        hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for column in (self.first, self.second, self.labels):
            hasher.update(json.dumps(column).encode())
        return hasher.hexdigest()

    def with_ids(self, ids: Sequence[int]) -> "SplitRows":
        """Return the rows with label ``ids[i]`` for ``i``; numbers that are no ids, for which none are given, stay."""
        if self.labels is None or not ids:
            return self
        return replace(self, labels=tuple(ids[int(label)] for label in self.labels))

    def head(self, count: int) -> "SplitRows":
        """Return the first ``count`` rows, or all where there are fewer."""
        return replace(
            self,
            first=self.first[:count],
            second=None if self.second is None else self.second[:count],
            labels=None if self.labels is None else self.labels[:count],
        )
