"""What jobs have trained, as the program ``export`` writes it."""

import math
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.integration.services.programs import takt

Tensors = dict[str, torch.Tensor]


def exported(job: str, *, state_dir: Path, out: Path) -> Tensors:
    """Export a job; return its tensors by name."""
    finished = takt("export", job, "--state-dir", state_dir, "--out", out)
    assert finished.code == 0, finished.err
    tensors: Tensors = load_file(out / "model.safetensors")
    return tensors


def saved(job_folder: Path, *, step: int) -> Tensors:
    """Return a checkpoint's tensors by name, parameters and the optimizer's, of all stages."""
    shards = sorted((job_folder / "checkpoints" / f"step-{step}").glob("*.safetensors"))
    return {name: tensor for shard in shards for name, tensor in load_file(shard).items()}


def assert_same_bits(found: Tensors, expected: Tensors) -> None:
    """Hold that all tensors are equal."""
    assert found.keys() == expected.keys()
    different = [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)]
    assert not different, f"{len(different)} of {len(expected)} differ, for instance {different[:3]}"


def difference(found: Tensors, expected: Tensors) -> float:
    """Return the relative L2 difference over all tensors but key biases, whose gradients are nothing but rounding."""
    assert found.keys() == expected.keys()
    names = [name for name in expected if not name.endswith("attention.self.key.bias")]
    differences = [(found[name].double() - expected[name].double()).norm().item() for name in names]
    sizes = [expected[name].double().norm().item() for name in names]
    return math.hypot(*differences) / math.hypot(*sizes)
