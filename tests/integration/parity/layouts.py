"""Every schedule in the layouts that tests run: a set that covers much by default, all of it where asked for."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.models import TINY

FULL = os.environ.get("TAKT_PARITY") == "full"
"""Whether every layout is run with every count of microbatches and both optimizers (``make parity-full``)."""

SIXTEEN = (
    LocalStep((7, 12, 32, 9, 5, 6, 8, 20, 3, 14, 2, 11, 30, 4, 10, 13)),
    LocalStep((8, 8, 16, 16, 8, 8, 5, 5, 21, 6, 2, 2, 9, 31, 12, 7)),
    LocalStep((30, 4, 4, 4, 11, 3, 2, 9, 17, 5, 6, 28, 3, 8, 19, 2)),
)
"""Sixteen rows a step, so that up to sixteen microbatches have rows of their own."""


Folders = dict[int, str]
"""Where a model without dropout lies, by its number of layers."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One schedule on some workers."""

    schedule: str
    pp: int
    num_microbatches: int
    num_chunks: int = 1
    group_size: int | None = None
    warmup: str | tuple[int, ...] | None = None

    def __str__(self) -> str:
        parts = [self.schedule, f"pp{self.pp}", f"v{self.num_chunks}", f"m{self.num_microbatches}"]
        if self.group_size is not None:
            parts.append(f"n{self.group_size}")
        if self.warmup is not None:
            parts.append("eager" if self.warmup == "eager" else f"w{'.'.join(map(str, self.warmup))}")
        return "-".join(parts)

    @property
    def num_layers(self) -> int:
        """Layers of the model: the fewest of 4, 8 and 12 that give each stage one."""
        return 4 * math.ceil(self.pp * self.num_chunks / 4)

    @property
    def model(self) -> dict[str, Any]:
        """Values of the model's config, without dropout."""
        return TINY | {"num_hidden_layers": self.num_layers}

    def case(self, folders: Folders | None, steps: tuple[LocalStep, ...] = SIXTEEN, **changes: Any) -> LocalCase:
        """Return a case in this layout; without ``folders`` the weights are new ones."""
        values = {
            "model": self.model,
            "folder": None if folders is None else folders[self.num_layers],
            "schedule": self.schedule,
            "pp": self.pp,
            "num_chunks": self.num_chunks,
            "num_microbatches": self.num_microbatches,
            "group_size": self.group_size,
            "warmup": self.warmup,
            "steps": steps,
            "learning_rate": self.rate(changes.get("optimizer", "adamw")),
        }
        return LocalCase(**values | changes)

    def rate(self, optimizer: str) -> float:
        """Return a learning rate at which a comparison with one process tells much.

        SGD's steps are of the size of the gradients, whose norm is about 0.1: at a much smaller rate no fault of
        an update would show. AdamW makes a step of up to the rate out of a gradient that is next to zero, rounding
        included; of many layers some element has one, and at 1e-4 its step alone changes the next gradients by 1e-6.
        """
        if optimizer == "sgd":
            return 0.1
        return 1e-4 if self.num_layers == 4 else 1e-5


def plain(case: LocalCase) -> LocalCase:
    """Return the same job in the layout that the others are compared with: 1f1b, one chunk, on two workers."""
    return replace(case, schedule="1f1b", plan_text=None, pp=2, num_chunks=1, group_size=None, warmup=None)


COVERING = [
    # one worker: neighbouring stages hand over without a transfer
    *(Layout("interleaved", 1, m, v) for v, m in ((3, 3), (2, 1))),
    *(Layout("looped_bfs", 1, m, v) for v, m in ((1, 3), (3, 5))),
    Layout("zbh1", 1, 1),
    *(Layout("zbh2", 1, m) for m in (3, 8)),
    Layout("zbv", 1, 1, 2),
    *(Layout("dualpipev", 1, m, 2) for m in (2, 5)),
    Layout("1f1b", 1, 4, warmup=(2,)),
    # two workers: the neighbours above and below are one
    *(Layout("interleaved", 2, m, 2) for m in (2, 16)),
    *(Layout("interleaved", 2, m, 2, n) for m, n in ((5, 3), (3, 3))),
    *(Layout("interleaved", 2, m, 3) for m in (2, 8)),
    Layout("interleaved", 2, 7, 3, 4),  # a last group of 3: smaller than N = 4, not smaller than P = 2
    *(Layout("looped_bfs", 2, m, v) for v, m in ((1, 1), (2, 3), (2, 8), (3, 1), (3, 6))),
    *(Layout("zbh1", 2, m) for m in (1, 2, 16)),
    *(Layout("zbh2", 2, m) for m in (1, 2, 5)),
    *(Layout("zbv", 2, m, 2) for m in (1, 2, 3, 16)),
    *(Layout("dualpipev", 2, m, 2) for m in (5, 16)),
    *(Layout("1f1b", 2, m, warmup="eager") for m in (1, 8)),
    *(Layout("1f1b", 2, 8, warmup=w) for w in ((3, 1), (4, 0))),
    # four workers
    *(Layout("interleaved", 4, m, 2) for m in (8, 16)),
    *(Layout("interleaved", 4, m, 2, n) for m, n in ((9, 5), (10, 6))),
    Layout("interleaved", 4, 12, 3),
    Layout("interleaved", 4, 11, 3, 6),
    *(Layout("looped_bfs", 4, m, v) for v, m in ((1, 1), (2, 2), (2, 8), (3, 3))),
    *(Layout("zbh1", 4, m) for m in (1, 2, 3, 16)),
    *(Layout("zbh2", 4, m) for m in (1, 2, 3, 8)),
    *(Layout("zbv", 4, m, 2) for m in (1, 2, 3, 8)),
    *(Layout("dualpipev", 4, m, 2) for m in (9, 16)),
    Layout("1f1b", 4, 3, warmup="eager"),
    *(Layout("1f1b", 4, 8, warmup=w) for w in ((3, 3, 1, 0), (8, 5, 2, 0))),
]
"""Few and many microbatches, and the special cases of each schedule; four of them are in ``matrix``."""

EACH = [
    Layout("interleaved", 2, 4, 2),
    Layout("looped_bfs", 2, 4, 2),
    Layout("zbh1", 2, 4),
    Layout("zbh2", 2, 4),
    Layout("zbv", 2, 4, 2),
    Layout("dualpipev", 2, 4, 2),
    Layout("1f1b", 2, 4, warmup="eager"),
    Layout("1f1b", 2, 4, warmup=(2, 1)),
]
"""Every schedule once, on two workers with four microbatches."""

ON_FOUR = [Layout("interleaved", 4, 8, 2), Layout("zbh2", 4, 8), Layout("zbv", 4, 8, 2)]
"""Chunks, a backward in halves, and both, on four workers with eight microbatches; every schedule where all is run."""
if FULL:
    ON_FOUR += [
        Layout("looped_bfs", 4, 8, 3),
        Layout("zbh1", 4, 8),
        Layout("dualpipev", 4, 8, 2),
        Layout("1f1b", 4, 8, warmup="eager"),
    ]


def every_layout() -> Iterator[Layout]:
    """Yield all of pp 1, 2, 4 x chunks 1, 2, 3 x microbatches 1 to 16 that the schedules allow."""
    for pp in (1, 2, 4):
        for m in range(1, 17):
            yield from (Layout("looped_bfs", pp, m, v) for v in (1, 2, 3))
            yield from (Layout(schedule, pp, m) for schedule in ("zbh1", "zbh2"))
            yield Layout("zbv", pp, m, 2)
            yield Layout("1f1b", pp, m, warmup="eager")
            yield Layout("1f1b", pp, m, warmup=tuple(min(m, 2 * (pp - s)) for s in range(pp)))
            if m >= 2 * pp:
                yield Layout("dualpipev", pp, m, 2)
            if m >= pp:
                # N = P where the last group is then full or has at least P; else one group of all microbatches
                group_size = None if m % pp == 0 else m
                yield from (Layout("interleaved", pp, m, v, group_size) for v in (2, 3))


TRAINED = (
    [(layout, optimizer) for layout in every_layout() for optimizer in ("adamw", "sgd")]
    if FULL
    else [(layout, ("adamw", "sgd")[index % 2]) for index, layout in enumerate(COVERING)]
)
"""Layout and optimizer of each training that is compared with one process."""
