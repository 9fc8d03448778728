"""What the coordinator costs: a job's step time against the same plan run from a local list.

    python -m benchmarks.coordinator_overhead --pairs 5

Each pair runs one job on real services (`takt up`) and one local case: same engine,
transport, model, plan, and shapes of all microbatches. The order within a pair
alternates, so that a machine that gets slower favours neither.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.local_case import LocalCase, LocalStep
from benchmarks.local_pool import LocalPool

TAKT = str(Path(sys.executable).with_name("takt"))
WARM_UP_STEPS = 5
"""Steps at the start of every run that are left out."""
_LIMIT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What both sides run."""

    pp: int
    num_microbatches: int
    global_batch_size: int
    width: int
    """Tokens that every microbatch is padded to."""
    num_steps: int
    layers: int
    hidden_size: int

    @property
    def model(self) -> dict[str, Any]:
        """Values of the Hugging Face config."""
        return {
            "model_type": "bert",
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden_size,
            "num_attention_heads": max(1, self.hidden_size // 64),
            "intermediate_size": 4 * self.hidden_size,
            "max_position_embeddings": self.width,
        }

    def local_case(self) -> LocalCase:
        """Return the local side: the first row of each microbatch is full, the others pad, as real rows do."""
        rows = self.global_batch_size // self.num_microbatches
        lengths = tuple(self.width if row % rows == 0 else self.width // 4 for row in range(self.global_batch_size))
        return LocalCase(
            model=self.model,
            schedule="1f1b",
            pp=self.pp,
            num_microbatches=self.num_microbatches,
            steps=(LocalStep(lengths),) * self.num_steps,
            words=96,
        )

    def job(self) -> dict[str, Any]:
        """Return the job file of the other side."""
        return {
            "name": "overhead",
            "model": {"config": self.model},
            "data": {"task": "demo", "max_length": self.width, "padding": "max_length"},
            "parallel": {"pp": self.pp},
            "schedule": {"name": "1f1b", "num_microbatches": self.num_microbatches},
            "train": {
                "epochs": None,
                "max_steps": self.num_steps,
                "global_batch_size": self.global_batch_size,
                "learning_rate": 1e-4,
                "lr_schedule": "constant",
            },
            "eval": {"at_end": False},
        }


@contextmanager
def services(state_dir: Path, *, workers: int) -> Iterator[str]:
    """Keep `takt up` running; the value is the coordinator's address."""
    # A standby would import its libraries while the other side is measured.
    environment = os.environ | {"TAKT_STANDBY": "0", "OMP_NUM_THREADS": "1"}
    command = [TAKT, "up", "--workers", str(workers), "--listen", "127.0.0.1:0", "--state-dir", str(state_dir)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"'takt up' ended with {process.wait()} before it was ready")
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def job_seconds(address: str, state_dir: Path, job_file: Path, job: str) -> list[float]:
    """Run a job and return the seconds of its steps."""
    subprocess.run(
        [TAKT, "submit", str(job_file), "--id", job, "--wait", "--coordinator", address],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=_LIMIT_SECONDS,
    )
    lines = (state_dir / "jobs" / job / "steps.jsonl").read_text().splitlines()
    return [json.loads(line)["seconds"] for line in lines]


def local_seconds(pool: LocalPool, case: LocalCase) -> list[float]:
    """Run a case and return the seconds of its steps, as its last worker saw them."""
    result = pool.run(case, limit_seconds=_LIMIT_SECONDS)
    seconds: list[float] = result.workers[-1]["seconds"]
    return seconds


def median(seconds: list[float]) -> float:
    """Return the median step time without the warm-up."""
    return statistics.median(seconds[WARM_UP_STEPS:])


def main(arguments: list[str] | None = None) -> int:
    """Run the pairs and print their figures; 1 where the median cost is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--limit", type=float, default=0.03, help="cost that is still accepted, 0.03 for 3 %%")
    chosen = parser.parse_args(arguments)
    setting = Setting(
        pp=chosen.pp,
        num_microbatches=8,
        global_batch_size=32,
        width=64,
        num_steps=chosen.steps + WARM_UP_STEPS,
        layers=chosen.layers,
        hidden_size=chosen.hidden_size,
    )
    costs = []
    with tempfile.TemporaryDirectory(prefix="takt-overhead-") as folder:
        state_dir, job_file = Path(folder) / "state", Path(folder) / "job.yaml"
        job_file.write_text(json.dumps(setting.job()))  # JSON is YAML
        with services(state_dir, workers=setting.pp) as address, LocalPool(setting.pp) as pool:
            local_seconds(pool, setting.local_case())  # the first run of a pool imports
            for pair in range(chosen.pairs):
                if pair % 2:
                    local = median(local_seconds(pool, setting.local_case()))
                    job = median(job_seconds(address, state_dir, job_file, f"pair-{pair}"))
                else:
                    job = median(job_seconds(address, state_dir, job_file, f"pair-{pair}"))
                    local = median(local_seconds(pool, setting.local_case()))
                costs.append(job / local - 1)
                print(f"pair {pair}: job {job * 1e3:7.1f} ms, local {local * 1e3:7.1f} ms, cost {costs[-1]:+.1%}")
    cost = statistics.median(costs)
    print(f"median cost of the coordinator: {cost:+.1%} (from {min(costs):+.1%} to {max(costs):+.1%})")
    return 0 if cost <= chosen.limit else 1


if __name__ == "__main__":
    sys.exit(main())
