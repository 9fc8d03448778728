"""Layers that keep statistics of what they have seen in training: which ones Takt can train, and their first values.

A layer of this kind changes its buffers in every forward, so the engine must know it: see
``stage_worker.engine.running_statistics``. One that it does not know would see each microbatch as a whole batch.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from stage_worker.models.families import UnsupportedModelError
from stage_worker.models.family import Block
from stage_worker.models.tensor_files import WeightsError
from stage_worker.models.weights import WeightsFolder

_COVERED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_COUNT = "num_batches_tracked"


def check_running_statistics(model: nn.Module, blocks: Sequence[Block]) -> None:
    """Refuse a model with running statistics that the engine cannot keep.

    Args:
        model: the whole skeleton, so that every worker says the same.
        blocks: all of it.

    Raises:
        UnsupportedModelError: a layer is of another kind than ``nn.BatchNorm1d``, ``2d``, ``3d``, or belongs to
            several blocks.
    """
    for name, layer in model.named_modules():
        if _keeps_statistics(layer) and not _is_covered(layer):
            raise UnsupportedModelError(
                f"{name} is a {type(layer).__name__}, which keeps running statistics in a way that is not covered; "
                f"covered are: {', '.join(kind.__name__ for kind in _COVERED)}"
            )
    block_of: dict[nn.Module, str] = {}
    for block in blocks:
        for prefix in block.modules:
            for name, layer in layers_with_statistics(model.get_submodule(prefix), prefix=prefix):
                if block_of.setdefault(layer, block.name) != block.name:
                    raise UnsupportedModelError(
                        f"{name} keeps running statistics and belongs to the blocks {block_of[layer]} and "
                        f"{block.name}; such a layer is covered in one block only"
                    )


def layers_with_statistics(module: nn.Module, *, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers inside ``module`` that keep running statistics and are covered, with their global names."""
    for name, layer in module.named_modules(prefix=prefix):
        if _keeps_statistics(layer) and _is_covered(layer):
            yield name, layer


@torch.no_grad()
def fill_running_statistics(
    module: nn.Module, *, prefix: str, weights: WeightsFolder | None, may_be_new: bool
) -> set[str]:
    """Give the layers inside ``module`` what the folder holds of them, or the values of layers that saw nothing.

    Args:
        module: has memory.
        prefix: its global name.
        weights: None for a new model.
        may_be_new: whether the folder may lack the module.

    Returns:
        The global names of the buffers that were filled.

    Raises:
        WeightsError: the folder lacks a tensor, or has it in another shape.
    """
    filled: set[str] = set()
    for layer_name, layer in layers_with_statistics(module, prefix=prefix):
        assert isinstance(layer, _COVERED), "only these are yielded"
        layer.reset_running_stats()
        buffers = {f"{layer_name}.{name}": buffer for name, buffer in layer.named_buffers(recurse=False)}
        filled |= buffers.keys()
        stored = [name for name in buffers if weights is not None and weights.has(name)]
        if weights is None or (may_be_new and not stored):
            continue
        for name, buffer in buffers.items():
            if name not in stored and name.endswith(_COUNT):
                continue  # files that torch wrote before it counted lack it
            tensor = weights.read(name)
            if tensor.shape != buffer.shape:
                raise WeightsError(
                    f"{name} has shape {tuple(tensor.shape)} in the pretrained folder, "
                    f"the model of this job needs {tuple(buffer.shape)}"
                )
            buffer.copy_(tensor)
    return filled


def _keeps_statistics(layer: nn.Module) -> bool:
    names = [name for name, _ in layer.named_buffers(recurse=False)]
    found = any(name.startswith("running_") or name == _COUNT for name in names)
    return found and getattr(layer, "track_running_stats", True)


def _is_covered(layer: nn.Module) -> bool:
    return isinstance(layer, _COVERED) and type(layer).forward is nn.BatchNorm1d.forward
