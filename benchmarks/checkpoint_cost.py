"""What checkpoints cost a real job: step times of MRPC on two stages with one every 20 steps, against without.

    python -m benchmarks.checkpoint_cost --model FOLDER --glue FOLDER --rounds 5

Each round runs the same job twice with `takt run`, alike in all but `checkpoint.every_steps`; which is
first changes from round to round, so that a machine that gets slower favours neither. A step's time is that between
two commits, so whatever a checkpoint holds up is in it; the first steps and the last, after which both save, are left
out. A ratio is of the mean steps of one round: a median step would not see what one step in twenty waits for.
Exits with 1 where the median ratio is above the promise.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_TAKT = Path(sys.executable).with_name("takt")
_NEVER = 10**6
WARM_UP_STEPS = 5
"""Steps at the start of every run that are left out."""
_PROMISE = 1.05


def mean_step_seconds(folder: Path) -> float:
    """Return the mean step of a job, without those that warm up and the last one."""
    lines = (folder / "steps.jsonl").read_text().splitlines()
    return statistics.fmean(json.loads(line)["seconds"] for line in lines[WARM_UP_STEPS:-1])


def run_job(name: str, every_steps: int, scratch: Path, chosen: argparse.Namespace) -> float:
    """Train with ``takt run`` and return the mean step."""
    job = {
        "name": name,
        "model": {"pretrained": str(chosen.model)},
        "data": {"task": "mrpc", "source": str(chosen.glue)},
        "parallel": {"pp": 2, "dp": 1},
        "schedule": {"name": "1f1b", "num_microbatches": 8},
        "train": {"global_batch_size": 32, "max_steps": chosen.steps},
        "eval": {"at_end": False},
        "checkpoint": {"every_steps": every_steps, "keep": 2},
    }
    state = scratch / "state"
    state.mkdir(exist_ok=True)
    file = state / f"{name}.json"
    file.write_text(json.dumps(job))
    command = [_TAKT, "run", file, "--id", name, "--state-dir", state]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return mean_step_seconds(state / "jobs" / name)


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds and print what they measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a pretrained BERT")
    parser.add_argument("--glue", type=Path, required=True, help="folder in the GLUE layout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="of each run")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    chosen = parser.parse_args(arguments)
    ratios = []
    for number in range(chosen.rounds):
        seconds = {}
        with tempfile.TemporaryDirectory(prefix="takt-checkpoints-") as scratch:
            for every in (chosen.every, _NEVER) if number % 2 == 0 else (_NEVER, chosen.every):
                seconds[every] = run_job(f"every-{every}", every, Path(scratch), chosen)
        ratios.append(seconds[chosen.every] / seconds[_NEVER])
        print(
            f"round {number}: {seconds[chosen.every] * 1e3:8.1f} ms with, {seconds[_NEVER] * 1e3:8.1f} ms without, "
            f"ratio {ratios[-1]:.3f}",
            flush=True,
        )
    median = statistics.median(ratios)
    print(f"a checkpoint every {chosen.every} steps: {median:.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
    print("as promised" if median <= _PROMISE else f"ABOVE THE PROMISE OF {_PROMISE}")
    return 0 if median <= _PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
