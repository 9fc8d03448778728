"""What regrouping rows by length brings on real text: padding and examples/s of two jobs that differ in nothing else.

    python -m benchmarks.length_balanced --model FOLDER --glue FOLDER --rounds 3

Each round runs one job in order and one regrouped, the first of them by turns, for SST-2 and for MRPC: two stages,
1f1b, 8 microbatches, max_length 128, dropout 0. The first steps are left out, in which memory is touched for the first
time. How many times fewer positions are computed is the most that examples/s could rise, were a step's time all theirs;
a larger `--batch` comes closer to it. Exits with 1 where padding is 8 % or more (of batches of 32), or losses of the
first 20 steps are more than 1e-5 apart.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.plain_training import save_without_dropout
from benchmarks.real_training import differences, lines_of

_TAKT = Path(sys.executable).with_name("takt")
_WARMING_STEPS = 3
_COMPARED_STEPS = 20
_MOST_PADDING, _PROMISED_BATCH, _SAME = 0.08, 32, 1e-5
_WAYS = ("in_order", "length_balanced")


@dataclass(frozen=True, slots=True)
class Measured:
    """What one job's steps say."""

    examples_per_second: float
    padding: float
    """Share of all positions."""
    positions: int
    losses: list[float]


def run_job(task: str, way: str, *, model: Path, glue: Path, steps: int, batch: int, state: Path) -> Measured:
    """Train for some steps with ``takt run``."""
    job = {
        "name": task,
        "model": {"pretrained": str(model)},
        "data": {"task": task, "source": str(glue), "max_length": 128, "microbatching": way},
        "parallel": {"pp": 2},
        "schedule": {"name": "1f1b", "num_microbatches": 8},
        "train": {"max_steps": steps, "global_batch_size": batch, "learning_rate": 5e-5},
        "eval": {"at_end": False},
    }
    state.mkdir(parents=True, exist_ok=True)
    (state / "job.json").write_text(json.dumps(job))
    command = [_TAKT, "run", state / "job.json", "--id", "job", "--state-dir", state]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = lines_of(state / "jobs/job/steps.jsonl")
    warm = lines[_WARMING_STEPS:]
    padded, tokens = (sum(line[name] for line in lines) for name in ("padded_tokens", "tokens"))
    return Measured(
        examples_per_second=sum(line["examples"] for line in warm) / sum(line["seconds"] for line in warm),
        padding=padded / (padded + tokens),
        positions=padded + tokens,
        losses=[line["loss"] for line in lines],
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a pretrained BERT")
    parser.add_argument("--glue", type=Path, required=True, help="folder in the GLUE layout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=_PROMISED_BATCH)
    chosen = parser.parse_args(arguments)
    good = True
    with tempfile.TemporaryDirectory(prefix="takt-balanced-") as scratch:
        model = Path(scratch) / "model"
        save_without_dropout(chosen.model, model)
        for task in ("sst2", "mrpc"):
            ratios: list[float] = []
            for turn in range(chosen.rounds):
                found = {
                    way: run_job(
                        task,
                        way,
                        model=model,
                        glue=chosen.glue,
                        steps=chosen.steps,
                        batch=chosen.batch,
                        state=Path(scratch) / f"{task}-{turn}-{way}",
                    )
                    for way in (_WAYS if turn % 2 == 0 else _WAYS[::-1])
                }
                plain, balanced = (found[way] for way in _WAYS)
                ratios.append(balanced.examples_per_second / plain.examples_per_second)
                apart = max(differences(balanced.losses, plain.losses)[:_COMPARED_STEPS])
                good &= apart <= _SAME and (balanced.padding < _MOST_PADDING or chosen.batch != _PROMISED_BATCH)
                print(
                    f"{task} round {turn}: padding {plain.padding:.1%} -> {balanced.padding:.1%}, positions "
                    f"{plain.positions / balanced.positions:.2f} times fewer, examples/s "
                    f"{plain.examples_per_second:.1f} -> {balanced.examples_per_second:.1f}, losses {apart:.2g} apart",
                    flush=True,
                )
            print(f"{task}: {statistics.median(ratios):.2f} times the examples/s ({min(ratios):.2f}-{max(ratios):.2f})")
    print("as promised" if good else "NOT AS PROMISED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
