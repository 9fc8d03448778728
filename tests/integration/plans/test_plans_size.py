"""Large plans: time of the processor and memory, with room to spare; benchmarks/planning_speed.py measures them."""

import time
import tracemalloc

import pytest

from coordinator.schedule.plan import make_plan, num_commands
from coordinator.schedule.simulate import simulate

GIB = 2**30


@pytest.mark.parametrize(
    ("schedule", "num_workers", "num_chunks", "num_microbatches", "num_seconds"),
    [
        ("1f1b", 64, 1, 512, 10),
        ("zbv", 64, 2, 512, 10),
        ("1f1b", 256, 1, 256, 120 / 16),  # a sixteenth of 1,024 x 1,024 in a sixteenth of two minutes
    ],
)
def test_planning_and_simulating_a_large_step_takes_seconds(
    schedule: str, num_workers: int, num_chunks: int, num_microbatches: int, num_seconds: float
) -> None:
    started = time.process_time()
    plan = make_plan(schedule, num_workers=num_workers, num_chunks=num_chunks, num_microbatches=num_microbatches)
    timeline = simulate(plan)
    assert time.process_time() - started < num_seconds
    assert timeline.ideal == 3 * num_microbatches


def test_planning_and_simulating_takes_so_little_memory_that_a_million_forwards_fit_into_4_gib() -> None:
    tracemalloc.start()
    try:
        plan = make_plan("1f1b", num_workers=64, num_microbatches=64)
        simulate(plan)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    instructions_of_a_million = 1024 * 2 * 1024 + 1023 * 4 * 1024 + 1024 * 2
    assert peak / num_commands(plan) * instructions_of_a_million < 4 * GIB
