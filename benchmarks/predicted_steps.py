"""How far predicted steps are from measured ones: a profile, then every schedule by prediction and on this machine.

    python -m benchmarks.predicted_steps --rounds 3
    python -m benchmarks.predicted_steps --objective masked_lm --vocabulary 8000 --partitions even balanced
    python -m benchmarks.predicted_steps --pp 3 --core-share 0.6 --schedules 1f1b gpipe --partitions even balanced

One `takt up` serves all jobs. `takt profile` measures costs first, and all jobs hold them; then each round runs every
layout once, beginning with another one. A ratio is the predicted step over the median measured one, of all rounds
together. Exits with 1 where a ratio is further from 1 than 10 %, where the layout that is predicted to be the best is
more than 5 % slower than the best one measured, or where a balanced partition saves another share of the even one's
step than predicted, by more than 5 points. What it saves is the median over the rounds, in each of which the two run
one after the other, because a machine shared with others changes its pace from minute to minute.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.core_share import core_share

_TAKT = Path(sys.executable).with_name("takt")
_WARMING_STEPS = 3
_WITHIN, _BEST_WITHIN, _GAIN_WITHIN = 0.10, 0.05, 0.05
_LAYOUTS: dict[str, dict[str, Any]] = {
    "1f1b": {"name": "1f1b"},
    "gpipe": {"name": "gpipe"},
    "interleaved": {"name": "interleaved", "num_chunks": 2},
    "zbh1": {"name": "zbh1"},
    "zbv": {"name": "zbv", "num_chunks": 2},
    "naive": {"name": "naive"},
    "looped_bfs": {"name": "looped_bfs", "num_chunks": 2},
    "zbh2": {"name": "zbh2"},
    "dualpipev": {"name": "dualpipev", "num_chunks": 2},
}


Layout = tuple[str, str]
"""Its schedule and its partition."""


def job_of(chosen: argparse.Namespace, layout: Layout, costs: Path | None = None) -> dict[str, Any]:
    """Return the job of one layout: a model from scratch, every row as wide as any other."""
    schedule, partition = layout
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
        "parallel": {"pp": chosen.pp, "partition": partition, "costs": None if costs is None else str(costs)},
        "schedule": {**_LAYOUTS[schedule], "num_microbatches": chosen.microbatches},
        "train": {
            "max_steps": chosen.steps + _WARMING_STEPS,
            "global_batch_size": chosen.rows * chosen.microbatches,
            "learning_rate": 1e-4,
            "objective": chosen.objective,
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


class Steps(NamedTuple):
    """Of one layout, in seconds."""

    predicted: float
    rounds: list[float]

    @property
    def measured(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds)


def compared(chosen: argparse.Namespace, folder: Path, address: str) -> dict[Layout, Steps]:
    """Return the predicted and the measured steps of each layout."""
    costs, profiled = folder / "costs.json", folder / "profiled.json"
    profiled.write_text(json.dumps(job_of(chosen, ("1f1b", "even"))))
    print(takt("profile", profiled, "--out", costs, "--coordinator", address, "--state-dir", folder / "state"))
    jobs = {}
    for layout in product(chosen.schedules, chosen.partitions):
        jobs[layout] = folder / f"{'-'.join(layout)}.json"
        jobs[layout].write_text(json.dumps(job_of(chosen, layout, costs)))
    steps = defaultdict(list)
    for number in range(chosen.rounds):
        layouts = list(jobs)
        for layout in [*layouts[number % len(layouts) :], *layouts[: number % len(layouts)]]:
            steps[layout].append(measured(jobs[layout], state=folder / "state", address=address))
    found = {}
    with ThreadPoolExecutor(max_workers=2) as pool:
        plans = list(pool.map(lambda path: takt("plan", path, "--output", "json", "--no-orders"), jobs.values()))
    for layout, text in zip(jobs, plans, strict=True):
        plan = json.loads(text)
        found[layout] = Steps(plan["makespan"], steps[layout])
        predicted, step = plan["makespan"], found[layout].measured
        measurements = ", ".join(f"{each:.4f}" for each in steps[layout])
        print(
            f"{' '.join(layout):<20} layers {plan['layers_per_stage']}, predicted {predicted:.4f} s, "
            f"measured {step:.4f} s ({measurements}), ratio {predicted / step:.3f}"
        )
    return found


def gains(found: dict[Layout, Steps]) -> list[tuple[str, float, float]]:
    """Return what the balanced partition saves of the even one's step, by prediction and measured, by schedule."""
    told = []
    for schedule in {schedule: None for schedule, _ in found}:
        even, balanced = found.get((schedule, "even")), found.get((schedule, "balanced"))
        if even is not None and balanced is not None:
            saved = [1 - one / other for one, other in zip(balanced.rounds, even.rounds, strict=True)]
            told.append((schedule, 1 - balanced.predicted / even.predicted, statistics.median(saved)))
    return told


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
    parser.add_argument("--objective", default="classification", help="masked_lm has a head as large as the table")
    parser.add_argument("--core-share", type=float, help="of each worker, for more of them than there are cores")
    parser.add_argument("--schedules", nargs="+", choices=list(_LAYOUTS), default=list(_LAYOUTS))
    parser.add_argument("--partitions", nargs="+", choices=["even", "balanced"], default=["even"])
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="takt-predicted-") as folder:
        up = subprocess.Popen(
            [str(_TAKT), "up", "--workers", str(chosen.pp), "--state-dir", str(Path(folder) / "state")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert up.stdout is not None
        address = up.stdout.readline().strip()
        try:
            with core_share(up.pid, chosen.core_share):
                found = compared(chosen, Path(folder), address)
        finally:
            up.terminate()
            up.wait(60)
    best = min(found, key=lambda layout: found[layout].predicted)
    loss = found[best].measured / min(steps.measured for steps in found.values()) - 1
    print(f"best by prediction: {' '.join(best)}, {loss:.1%} slower than the best measured")
    for schedule, predicted, gain in gains(found):
        print(f"balanced saves {gain:.1%} of even with {schedule}, {predicted:.1%} by prediction")
    is_close = all(abs(steps.predicted / steps.measured - 1) <= _WITHIN for steps in found.values())
    is_gained = all(abs(predicted - gain) <= _GAIN_WITHIN for _, predicted, gain in gains(found))
    return 0 if is_close and is_gained and loss <= _BEST_WITHIN else 1


if __name__ == "__main__":
    sys.exit(main())
