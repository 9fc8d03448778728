"""How far predicted steps are from measured ones: a profile, then every schedule by prediction and on this machine.

    python -m benchmarks.predicted_steps --rounds 3

One `takt up` serves all jobs. `takt profile` measures costs first; then each round runs every layout once, beginning
with another one. A ratio is the predicted step over the median measured one, of all rounds together. Exits with 1
where a ratio is further from 1 than 10 %, or where the layout that is predicted to be the best is more than 5 % slower
than the best one measured.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

_TAKT = Path(sys.executable).with_name("takt")
_WARMING_STEPS = 3
_WITHIN, _BEST_WITHIN = 0.10, 0.05
_LAYOUTS: dict[str, dict[str, Any]] = {
    "1f1b": {"name": "1f1b"},
    "gpipe": {"name": "gpipe"},
    "interleaved": {"name": "interleaved", "num_chunks": 2},
    "zbh1": {"name": "zbh1"},
    "zbv": {"name": "zbv", "num_chunks": 2},
}


def job_of(chosen: argparse.Namespace, schedule: dict[str, Any]) -> dict[str, Any]:
    """Return the job of one layout: a model from scratch, every row as wide as any other."""
    return {
        "name": "predicted",
        "model": {
            "config": {
                "model_type": "bert",
                "num_hidden_layers": chosen.layers,
                "hidden_size": chosen.hidden_size,
                "num_attention_heads": max(1, chosen.hidden_size // 64),
                "intermediate_size": 4 * chosen.hidden_size,
                "max_position_embeddings": chosen.width,
                **({"vocab_size": chosen.vocabulary} if chosen.vocabulary else {}),
            }
        },
        "data": {"task": "demo", "max_length": chosen.width, "padding": "max_length"},
        "parallel": {"pp": chosen.pp, "partition": chosen.partition},
        "schedule": {**schedule, "num_microbatches": chosen.microbatches},
        "train": {
            "max_steps": chosen.steps + _WARMING_STEPS,
            "global_batch_size": chosen.rows * chosen.microbatches,
            "learning_rate": 1e-4,
        },
        "eval": {"at_end": False},
    }


def takt(*arguments: object) -> str:
    """Return what a command printed."""
    command = [str(_TAKT), *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measured(job: Path, *, state: Path, address: str) -> float:
    """Return the median step of one run in seconds."""
    job_id = takt("submit", job, "--wait", "--coordinator", address).strip()
    lines = (state / "jobs" / job_id / "steps.jsonl").read_text().splitlines()
    return statistics.median(json.loads(line)["seconds"] for line in lines[_WARMING_STEPS:])


def compared(chosen: argparse.Namespace, folder: Path, address: str) -> dict[str, tuple[float, float]]:
    """Return the predicted and the measured step of each layout."""
    jobs = {name: folder / f"{name}.json" for name in _LAYOUTS}
    for name, path in jobs.items():
        path.write_text(json.dumps(job_of(chosen, _LAYOUTS[name])))
    costs = folder / "costs.json"
    print(takt("profile", jobs["1f1b"], "--out", costs, "--coordinator", address, "--state-dir", folder / "state"))
    steps = defaultdict(list)
    for number in range(chosen.rounds):
        names = list(jobs)
        for name in [*names[number % len(names) :], *names[: number % len(names)]]:
            steps[name].append(measured(jobs[name], state=folder / "state", address=address))
    found = {}
    for name, path in jobs.items():
        plan = json.loads(takt("plan", path, "--costs", costs, "--output", "json", "--no-orders"))
        found[name] = plan["makespan"], statistics.median(steps[name])
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds and print what they measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="of each run, beside those that warm up")
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rows", type=int, default=4, help="of a microbatch")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=0, help="entries of the embedding table, else the task's")
    parser.add_argument("--partition", default="even")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="takt-predicted-") as folder:
        up = subprocess.Popen(
            [str(_TAKT), "up", "--workers", str(chosen.pp), "--state-dir", str(Path(folder) / "state")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert up.stdout is not None
        try:
            found = compared(chosen, Path(folder), up.stdout.readline().strip())
        finally:
            up.terminate()
            up.wait(60)
    for name, (predicted, step) in found.items():
        print(f"{name:<12} predicted {predicted:.4f} s, measured {step:.4f} s, ratio {predicted / step:.3f}")
    best = min(found, key=lambda name: found[name][0])
    loss = found[best][1] / min(step for _, step in found.values()) - 1
    print(f"best by prediction: {best}, {loss:.1%} slower than the best measured")
    is_close = all(abs(predicted / step - 1) <= _WITHIN for predicted, step in found.values())
    return 0 if is_close and loss <= _BEST_WITHIN else 1


if __name__ == "__main__":
    sys.exit(main())
