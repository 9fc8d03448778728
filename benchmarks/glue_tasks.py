"""Whole tasks of GLUE: a pretrained encoder is trained on two stages, and its predictions are scored apart from Takt.

    python -m benchmarks.glue_tasks --model FOLDER --glue FOLDER --tasks rte cola --epochs 3

Each task is trained with `takt run`, then its development rows are predicted with `takt predict`. Exits 1 where the
metrics in either job's eval.jsonl are not those that scikit-learn and scipy compute from the written predictions.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.glue_rows import TASKS, predictions_in, scores
from benchmarks.real_training import lines_of

_TAKT = Path(sys.executable).with_name("takt")
_SAME = 1e-7
"""How far metrics may be apart: labels that are numbers travel as fp32."""


def train(task: str, chosen: argparse.Namespace, state: Path) -> Path:
    """Train with ``takt run``; return the job's folder."""
    length = {"epochs": chosen.epochs} if chosen.steps is None else {"max_steps": chosen.steps}
    job = {
        "name": task,
        "model": {"pretrained": str(chosen.model.absolute())},
        "data": {"task": task, "source": str(chosen.glue.absolute())},
        "parallel": {"pp": 2, "dp": 1},
        "schedule": {"name": "1f1b", "num_microbatches": 8},
        "train": {
            "global_batch_size": chosen.batch,
            "learning_rate": chosen.rate,
            "weight_decay": 0.01,
            "warmup_fraction": 0.1,
            **length,
        },
    }
    file = state / f"{task}.json"
    file.write_text(json.dumps(job))
    takt("run", file, "--id", task, "--state-dir", state)
    return state / "jobs" / task


def predict(task: str, state: Path) -> Path:
    """Predict the development rows with what was trained; return the folder of the job that did."""
    job = f"{task}-dev"
    takt("predict", task, "--split", "validation", "--id", job, "--state-dir", state)
    return state / "jobs" / job


def takt(*arguments: object) -> None:
    """Run a command; what it prints goes to stderr, for stdout has the table."""
    subprocess.run([_TAKT, *map(str, arguments)], check=True, stdout=sys.stderr)


def examples_per_second(steps: list[dict[str, Any]]) -> float:
    """Return the rate over all steps but the first, which waits for its rows to be read."""
    later = steps[1:] or steps
    return sum(step["examples"] for step in later) / sum(step["seconds"] for step in later)


def agree(record: dict[str, Any], expected: dict[str, float]) -> bool:
    """Whether a record has just these metrics; one that is undefined has no value, and scikit-learn says 0 of it."""
    return all(
        record["reason"] if record[name] is None else math.isclose(record[name], value, rel_tol=0, abs_tol=_SAME)
        for name, value in expected.items()
    )


def main(arguments: list[str] | None = None) -> int:
    """Print a line a task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a pretrained encoder, with its tokenizer")
    parser.add_argument("--glue", type=Path, required=True, help="folder in the GLUE layout")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="instead of whole epochs")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-5)
    chosen = parser.parse_args(arguments)
    good = True
    print(f"{'task':<8}{'steps':>6}{'examples/s':>12}   metrics", flush=True)
    with tempfile.TemporaryDirectory(prefix="takt-glue-") as folder:
        state = Path(folder)
        for name in chosen.tasks:
            trained, predicted = train(name, chosen, state), predict(name, state)
            labels = [row[TASKS[name].label] for row in TASKS[name].rows(chosen.glue, "dev")]
            expected = scores(name, labels, predictions_in(predicted / "predictions-validation.tsv"))
            steps = lines_of(trained / "steps.jsonl")
            records = [lines_of(job / "eval.jsonl")[-1] for job in (trained, predicted)]
            same = all(agree(record, expected) for record in records)
            good &= same
            said = ", ".join(f"{metric} {value:.4f}" for metric, value in expected.items())
            rate = examples_per_second(steps)
            print(f"{name:<8}{len(steps):>6}{rate:>12.1f}   {said}{'' if same else f'   NOT {records}'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
