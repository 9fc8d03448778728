import hashlib
import subprocess
import sys

import torch

from stage_worker.engine.dropout import DropoutSeeds
from stage_worker.models.seeds import seed_of


def test_seed_of_is_the_blake2b_of_its_words() -> None:
    expected = int.from_bytes(hashlib.blake2b(b"42/dropout/3/0/1/bert.embeddings", digest_size=8).digest(), "little")
    assert seed_of(42, "dropout", 3, 0, 1, "bert.embeddings") == expected


def test_seed_of_is_the_same_in_another_process() -> None:
    """Python's own hash is not: it is salted."""
    code = "from stage_worker.models.seeds import seed_of; print(seed_of(1, 'a'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert int(done.stdout) == seed_of(1, "a")


def test_dropout_seed_depends_on_everything_it_is_for() -> None:
    def draw(*, seed: int = 1, dp_rank: int = 0, step: int = 1, microbatch: int = 0, module: str = "a") -> float:
        seeds = DropoutSeeds(seed=seed, dp_rank=dp_rank, device=torch.device("cpu"))
        seeds.set(step=step, microbatch=microbatch, module=module)
        return torch.rand(()).item()

    draws = [draw(), draw(seed=2), draw(dp_rank=1), draw(step=2), draw(microbatch=1), draw(module="b")]
    assert len(set(draws)) == len(draws)
    assert draw() == draws[0]
