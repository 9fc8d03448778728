"""A real job beside plain loops: MRPC with a real BERT on two stages, dropout 0, losses of every step.

    python -m benchmarks.real_training --model FOLDER --glue FOLDER --epochs 3

Two loops of one process train on the very rows of the job: one accumulates the same microbatches in the same order,
one takes whole batches. All use one torch thread a process. Exits with 1 where they are further apart than promised:
1e-6 on the loss of any step, of whole batches 1e-5 over the first 20, one point in accuracy and F1.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.plain_training import Microbatches, PlainTraining, Training, save_without_dropout

_TAKT = Path(sys.executable).with_name("takt")
_RATE, _DECAY, _WARMUP = 5e-5, 0.01, 0.1
WHOLE_BATCH_STEPS = 20
"""Steps over which whole batches, which are other sums, are held against the job's losses."""
_SAME, _WHOLE, _POINT = 1e-6, 1e-5, 0.01
"""How far losses, those of whole batches, and metrics may be apart."""


def run_job(model: Path, source: Path, state: Path, train: dict[str, int]) -> Path:
    """Train with ``takt run``; return the job's folder."""
    job = {
        "name": "mrpc",
        "model": {"pretrained": str(model)},
        "data": {"task": "mrpc", "source": str(source), "record_rows": True},
        "parallel": {"pp": 2, "dp": 1},
        "schedule": {"name": "1f1b", "num_microbatches": 8},
        "train": {
            "global_batch_size": 32,
            "learning_rate": _RATE,
            "weight_decay": _DECAY,
            "warmup_fraction": _WARMUP,
            **train,
        },
    }
    state.mkdir(parents=True, exist_ok=True)
    file = state / "job.json"
    file.write_text(json.dumps(job))
    subprocess.run([_TAKT, "run", file, "--id", "mrpc", "--state-dir", state], check=True)
    return state / "jobs/mrpc"


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def differences(found: Sequence[float], expected: Sequence[float]) -> list[float]:
    """Return how far each loss is from the expected one."""
    return [abs(one - other) for one, other in zip(found, expected, strict=True)]


def main(arguments: list[str] | None = None) -> int:
    """Train three times and print how the losses and metrics differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a pretrained BERT")
    parser.add_argument("--glue", type=Path, required=True, help="folder in the GLUE layout")
    parser.add_argument("--epochs", type=int, default=3)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="takt-real-") as scratch:
        model = Path(scratch) / "model"
        save_without_dropout(chosen.model, model)
        folder = run_job(model, chosen.glue, Path(scratch) / "state", {"epochs": chosen.epochs})
        steps = lines_of(folder / "steps.jsonl")
        (evaluated,) = lines_of(folder / "eval.jsonl")
        training = Training(
            model=model,
            source=chosen.glue,
            learning_rate=_RATE,
            weight_decay=_DECAY,
            warmup_fraction=_WARMUP,
            total_steps=len(steps),
        )
        found = [step["loss"] for step in steps]
        print(f"takt: {len(steps)} steps, last loss {found[-1]:.6f}, {evaluated}")
        accumulated: list[Microbatches] = [step["rows"][0] for step in steps]
        whole: list[Microbatches] = [[[row for rows in step for row in rows]] for step in accumulated]
        good = True
        for name, batches in (("same microbatches", accumulated), ("whole batches", whole)):
            plain = PlainTraining(training)
            apart = differences(found, list(plain.steps(batches)))
            first = max(apart[:WHOLE_BATCH_STEPS])
            print(f"{name}: losses at most {max(apart):.3g} apart, in the first {WHOLE_BATCH_STEPS} steps {first:.3g}")
            metrics = plain.evaluate()
            print(f"{name}: {metrics}")
            good &= first <= _WHOLE if batches is whole else max(apart) <= _SAME
            good &= all(abs(metrics[metric] - evaluated[metric]) <= _POINT for metric in ("accuracy", "f1"))
    print("as promised" if good else "FURTHER APART THAN PROMISED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
