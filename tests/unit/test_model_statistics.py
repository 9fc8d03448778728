"""Which layers with running statistics a model may have, and what they hold once it is loaded."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from stage_worker.models.families import UnsupportedModelError
from stage_worker.models.family import Block
from stage_worker.models.tensor_files import WeightsError
from tests.unit.batch_norm_model import BLOCKS, HIDDEN, MakeNorm, load, norm

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class OwnForward(nn.BatchNorm1d):
    """Computes something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return it doubled."""
        return super().forward(x) * 2


class OtherName(nn.BatchNorm1d):
    """Computes the same."""


class ThirdParty(nn.Module):
    """Has nothing of torch's but the names."""

    def __init__(self, buffer: str) -> None:
        super().__init__()
        self.register_buffer(buffer, torch.zeros(HIDDEN))


REFUSED: dict[str, MakeNorm] = {
    "SyncBatchNorm": norm(nn.SyncBatchNorm),
    "InstanceNorm1d": norm(nn.InstanceNorm1d, track_running_stats=True),
    "InstanceNorm2d": norm(nn.InstanceNorm2d, track_running_stats=True),
    "InstanceNorm3d": norm(nn.InstanceNorm3d, track_running_stats=True),
    "LazyBatchNorm1d": nn.LazyBatchNorm1d,
    "LazyInstanceNorm1d": lambda: nn.LazyInstanceNorm1d(track_running_stats=True),
    "OwnForward": norm(OwnForward),
}


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("name", REFUSED)
def test_loading_refuses_a_layer_that_is_not_covered_by_its_name_on_every_worker(name: str, stage: int) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"^layers\.0\.norm is a {name}, which keeps running statistics"):
        load(REFUSED[name], stages=(stage,), pp=2)


@pytest.mark.parametrize("buffer", ["running_mean", "running_var", "running_std", "num_batches_tracked"])
def test_loading_refuses_a_layer_of_nobody_known_by_its_buffers(buffer: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"^layers\.0\.norm is a ThirdParty, .* BatchNorm2d, BatchNorm3d$"):
        load(lambda: ThirdParty(buffer))


def test_loading_refuses_a_layer_that_two_blocks_share() -> None:
    embeddings, first, second, head = BLOCKS
    again = Block(second.name, (*second.modules, "layers.0"), second.call)
    with pytest.raises(
        UnsupportedModelError,
        match=r"^layers\.0\.norm keeps running statistics and belongs to the blocks layers\.0 and layers\.1",
    ):
        load(blocks=(embeddings, first, again, head))


@pytest.mark.parametrize(
    "make_norm",
    [
        norm(nn.InstanceNorm1d, affine=True),
        norm(nn.GroupNorm, num_channels=HIDDEN),
        *(norm(kind, track_running_stats=False) for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)),
    ],
)
def test_loading_takes_layers_that_keep_no_statistics(make_norm: MakeNorm) -> None:
    assert not [name for name in load(make_norm).state(0) if name.endswith(STATISTICS)]


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, OtherName])
def test_new_layer_begins_as_torch_has_it(kind: type[nn.Module]) -> None:
    state = load(norm(kind)).state(0)
    fresh = norm(kind)().state_dict()
    for name in STATISTICS:
        assert torch.equal(state[f"layers.1.norm.{name}"], fresh[name])
        assert state[f"layers.1.norm.{name}"].dtype == fresh[name].dtype


def stored(folder: Path) -> dict[str, torch.Tensor]:
    """Save a whole model with distinct values everywhere; return its tensors."""
    generator = torch.Generator().manual_seed(3)
    tensors = {
        name: torch.tensor(7) if tensor.dtype is torch.int64 else torch.rand(tensor.shape, generator=generator)
        for name, tensor in load().state(0).items()
    }
    save_file(tensors, folder / "model.safetensors")
    return tensors


@pytest.mark.parametrize("pp", [1, 2])
def test_loading_reads_statistics_from_the_folder(pp: int, tmp_path: Path) -> None:
    tensors = stored(tmp_path)
    found: dict[str, torch.Tensor] = {}
    for stage in range(pp):
        found |= load(stages=(stage,), pp=pp, folder=tmp_path).state(stage)
    assert {name for name in tensors if name.endswith(STATISTICS)} == {
        f"layers.{index}.norm.{name}" for index in range(2) for name in STATISTICS
    }
    assert found.keys() == tensors.keys()
    assert [name for name, tensor in tensors.items() if not torch.equal(found[name], tensor)] == []


def test_loading_counts_from_0_where_the_folder_has_no_count(tmp_path: Path) -> None:
    tensors = stored(tmp_path)
    del tensors["layers.0.norm.num_batches_tracked"]
    save_file(tensors, tmp_path / "model.safetensors")
    state = load(folder=tmp_path).state(0)
    assert state["layers.0.norm.num_batches_tracked"] == 0
    assert state["layers.1.norm.num_batches_tracked"] == 7
    assert torch.equal(state["layers.0.norm.running_var"], tensors["layers.0.norm.running_var"])


@pytest.mark.parametrize(
    "lost",
    [
        ("running_mean",),
        ("running_var",),
        STATISTICS,
    ],
    ids="+".join,
)
def test_loading_refuses_a_folder_that_lacks_statistics(lost: tuple[str, ...], tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in stored(tmp_path).items() if not name.endswith(lost)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=rf"has no tensor for layers\.0\.norm\.{lost[0]}"):
        load(folder=tmp_path)


def test_loading_makes_statistics_anew_in_a_module_that_a_task_adds(tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in stored(tmp_path).items() if not name.startswith("layers.1")}
    save_file(tensors, tmp_path / "model.safetensors")
    state = load(folder=tmp_path, new_in_a_task=("layers.1",)).state(0)
    assert torch.equal(state["layers.0.norm.running_var"], tensors["layers.0.norm.running_var"])
    assert torch.equal(state["layers.1.norm.running_var"], torch.ones(HIDDEN))
    assert state["layers.1.norm.num_batches_tracked"] == 0


def test_loading_refuses_statistics_of_another_shape(tmp_path: Path) -> None:
    tensors = stored(tmp_path) | {"layers.1.norm.running_mean": torch.zeros(3)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"layers\.1\.norm\.running_mean has shape \(3,\) .* needs \(8,\)"):
        load(folder=tmp_path)
