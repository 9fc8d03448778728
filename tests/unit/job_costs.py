"""A file of costs of the model that `cli_facts` tells of, in numbers that are easy to add up."""

import json
from pathlib import Path
from typing import Any


def part(
    forward: float, backward: float, *, input_gradient: float | None = None, optimizer: float = 0
) -> dict[str, Any]:
    """Return what a part costs at 1 and at 101 rows, where it costs a hundredth more for each row more."""
    halves = backward / 2 if input_gradient is None else input_gradient
    return {
        **{
            f"{name}_seconds": [seconds, 2 * seconds]
            for name, seconds in (
                ("forward", forward),
                ("backward", backward),
                ("input_gradient", halves),
                ("weight_gradient", backward - halves),
            )
        },
        "optimizer_seconds": optimizer,
        "parameter_bytes": 0,
    }


NOTHING = part(0, 0)


def costs(**changes: Any) -> dict[str, Any]:
    """Return the content of a file of costs: layers of 1 s and 2 s at 1 row, all else free, but for ``changes``."""
    return {
        "schema": "takt/v1",
        "kind": "costs",
        "source": "profile",
        "device": "cpu",
        "optimizer": "adamw",
        "precision": "fp32",
        "rows": [1, 101],
        "embeddings": NOTHING,
        "layers": [part(1, 2)],
        "head": NOTHING,
        "action_seconds": 0.0,
        "transfer": {"latency_seconds": 0.0, "seconds_per_byte": 0.0, "bytes_per_row": 0.0},
        "reduce_seconds_per_byte": 0.0,
        "step_seconds": 0.0,
        "first_backward_seconds": 0.0,
        **changes,
    }


def write_costs(folder: Path, **changes: Any) -> Path:
    """Write `costs` into ``folder``; return the file."""
    path = folder / "costs.json"
    path.write_text(json.dumps(costs(**changes), indent=1))
    return path
