"""What planning costs: seconds and memory of each phase, from a schedule's name to its predicted timeline.

    python -m benchmarks.planning_speed --schedule 1f1b --workers 1024 --microbatches 1024

One process, no job, nothing started. Memory is the most that the process has held so far.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from coordinator.schedule.plan import Schedule, make_plan, num_commands
from coordinator.schedule.simulate import simulate


def main(argv: list[str]) -> int:
    """Print one line a phase."""
    options = _options(argv)
    with _phase("plan: order, lower, check"):
        plan = make_plan(
            options.schedule,
            num_workers=options.workers,
            num_chunks=options.chunks,
            num_microbatches=options.microbatches,
        )
    with _phase("simulate"):
        timeline = simulate(plan)
    with _phase("check once more"):  # how much of the first line was the proof
        replace(plan)
    print(f"{num_commands(plan)} instructions, makespan {timeline.makespan:g}, bubble {timeline.bubble_fraction:.4%}")
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", choices=list(Schedule), default=Schedule.ONE_F_ONE_B)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--chunks", type=int, default=1)
    parser.add_argument("--microbatches", type=int, default=512)
    return parser.parse_args(argv)


@contextmanager
def _phase(name: str) -> Iterator[None]:
    started, started_cpu = time.perf_counter(), time.process_time()
    yield
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB
    print(f"{name:<26}{seconds:8.2f} s{cpu_seconds:8.2f} s CPU{peak_gib:8.2f} GiB", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
