"""Memory does not grow with the number of steps."""

from pathlib import Path
from statistics import median

import pytest

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.conftest import Run
from tests.integration.parity.models import TINY

pytestmark = pytest.mark.timeout(180)

WIDER = TINY | {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128}
STEP = LocalStep((32,) * 16)
"""Its forwards save some 4 MB on each worker; if each step kept a twentieth of them, it would show."""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(("recompute", "schedule"), [("none", "1f1b"), ("full", "zbh1")])
def test_two_hundred_steps_of_one_width_take_the_memory_of_fifty(recompute: str, schedule: str, *, run: Run) -> None:
    case = LocalCase(model=WIDER, schedule=schedule, pp=2, num_microbatches=2, steps=(STEP,) * 200, recompute=recompute)
    for worker in run(case).workers:
        resident = worker["resident_bytes"]
        assert len(resident) == 200
        early, late = median(resident[39:60]), median(resident[179:200])
        assert late == pytest.approx(early, rel=0.05)
