"""What trains like one process in every combination: the factors, and the case that a row of them stands for."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.layouts import FULL, Layout
from tests.integration.parity.models import MODELS
from tests.integration.parity.pairwise import Row, covering, every

SCHEDULES: Mapping[str, tuple[str, int, str | None]] = {
    "naive": ("naive", 1, None),
    "gpipe": ("gpipe", 1, None),
    "1f1b": ("1f1b", 1, None),
    "1f1b-eager": ("1f1b", 1, "eager"),
    "interleaved": ("interleaved", 2, None),
    "looped_bfs": ("looped_bfs", 2, None),
    "zbh1": ("zbh1", 1, None),
    "zbh2": ("zbh2", 1, None),
    "zbv": ("zbv", 2, None),
    "dualpipev": ("dualpipev", 2, None),
    "custom": ("custom", 2, None),
}
"""Schedule, chunks and warm-up by the name of a factor's value."""

FACTORS: Mapping[str, Sequence[object]] = {
    "model": tuple(MODELS),
    "schedule": tuple(SCHEDULES),
    "pp": (1, 2, 4),
    "dp": (1, 2),
    "recompute": ("none", "full", 1, "except_last"),
    "slices": (1, 3),
    "clips": (False, True),
    "optimizer": ("adamw", "sgd"),
}
"""Slices are steps of accumulation; recompute 1 is the first layer of every stage."""

BITS: Mapping[str, Sequence[object]] = {
    "model": ("bert", "albert", "llama", "bert-masked_lm", "gpt2-causal_lm"),
    "schedule": tuple(SCHEDULES),
    "pp": (1, 2, 4),
    "recompute": FACTORS["recompute"],
}
"""What may change no bit of a model that is trained with dropout."""

LARGEST_NORM = 0.02
"""Where gradients are clipped; all of them are larger."""

ModelFolder = Callable[[str, int], str]
"""(name of the model, layers) -> folder with random weights and no dropout."""


def rows_of(factors: Mapping[str, Sequence[object]]) -> list[Row]:
    """Return the rows to run: all of them only where asked for."""
    return every(factors) if FULL else covering(factors)


def name_of(row: Row) -> str:
    """Return a row as the name of its test."""
    return "-".join(f"{key}_{value}" if key not in ("model", "schedule") else str(value) for key, value in row.items())


def layout_of(row: Row) -> Layout:
    """Return the layout of one replica: four microbatches, eight where the schedule needs two a worker."""
    schedule, num_chunks, warmup = SCHEDULES[str(row["schedule"])]
    pp = row["pp"]
    assert isinstance(pp, int)
    return Layout(schedule, pp, 8 if (schedule, pp) == ("dualpipev", 4) else 4, num_chunks, warmup=warmup)


def case_of(row: Row, folder_of: ModelFolder | None, *, dropout: float = 0.0, **changes: Any) -> LocalCase:
    """Return the case of a row; without ``folder_of`` the weights are new ones. Only new models have dropout."""
    layout, model = layout_of(row), MODELS[str(row["model"])]
    slices = row.get("slices", 1)
    assert isinstance(slices, int)
    values: dict[str, Any] = {
        "model": model.config(num_layers=layout.num_layers, dropout=dropout),
        "folder": None if folder_of is None else folder_of(str(row["model"]), layout.num_layers),
        "objective": model.objective,
        "dp": row.get("dp", 1),
        "num_slices": slices,
        "recompute": row["recompute"],
        "plan_text": None,
        "seed": 3,  # the gradients of its rows cancel less than those of others, so rounding is a smaller share
    }
    if layout.schedule == "custom":
        values["plan_text"] = side_by_side(num_workers=layout.pp, num_microbatches=slices * layout.num_microbatches)
    return layout.case(None, steps_of(slices * layout.num_microbatches * int(str(values["dp"]))), **values | changes)


def steps_of(num_microbatches: int) -> tuple[LocalStep, ...]:
    """Return two steps in which every microbatch of both replicas has rows, and some one more than others."""
    num_rows = 26 if num_microbatches <= 24 else 50
    draw = random.Random(7)
    return tuple(LocalStep(tuple(draw.randint(2, 32) for _ in range(num_rows))) for _ in range(2))


def side_by_side(*, num_workers: int, num_microbatches: int) -> str:
    """Return a plan of two neighbouring stages a worker as CSV: all forwards, then backwards, each other one halved."""
    lines = []
    for worker in range(num_workers):
        lower, upper = 2 * worker, 2 * worker + 1
        actions = [f"{stage}F{m}" for m in range(num_microbatches) for stage in (lower, upper)]
        for m in range(num_microbatches):
            actions += [f"{stage}{op}{m}" for op in ("IW" if m % 2 else "B") for stage in (upper, lower)]
        lines.append(",".join(actions))
    return "\n".join(lines) + "\n"
