"""One microbatch through some blocks of a model on fake tensors, which have shapes and types but no memory.

With the engine's own weights, split backward and loss, so that what is kept is what the engine keeps of real rows on
a CPU; what a kernel keeps may differ on another device.

B rows, L positions, D hidden.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from stage_worker.engine.loss import loss_sum
from stage_worker.engine.split_backward import SplitBackward, WeightQueue
from stage_worker.engine.weights import Weights
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel, StageBlocks
from stage_worker.models.microbatch import Microbatch
from stage_worker.models.objective import Objective
from stage_worker.models.skeleton import Skeleton
from stage_worker.models.slices import StageSlice

_STAGE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What one microbatch takes."""

    forward_operations: int
    """Floating-point operations of the matrix products of its forward, 2 a multiply-add."""
    activation_bytes: int
    """Kept from its forward to its backward; parameters, buffers and the rows themselves left out."""
    waiting_bytes: int
    """Kept between the halves of a split backward."""


class Rehearsal:
    """Runs blocks of one model, each time one microbatch."""

    def __init__(self, skeleton: Skeleton, config: Any, *, dtype: torch.dtype) -> None:
        """Take over the skeleton of the model of ``config``, fitted to its task; layers compute in ``dtype``."""
        self._skeleton = skeleton
        self._config = config
        self._dtype = dtype
        self._fake = FakeTensorMode()
        with self._fake:
            self._masters = _with_shapes_only(skeleton)
        skeleton.model.train()

    def run(self, indices: Sequence[int], *, rows: int, width: int) -> Rehearsed:
        """Return what a stage of these blocks takes for one microbatch whose rows are padded; one position is not.

        Args:
            indices: blocks in order, the head among them only with a layer before it.
            rows: B.
            width: L.
        """
        first, last = 0 in indices, len(self._skeleton.blocks) - 1 in indices
        weights = Weights(self._loaded(indices), dtype=self._dtype)
        inputs = self._inputs(rows, width)
        model = self._skeleton.model
        kept = _Storages([*model.parameters(), *model.buffers(), *_columns(inputs)])
        queue: WeightQueue = []
        counter = FlopCounterMode(display=False, custom_mapping=_OPERATIONS)
        split = SplitBackward()
        with self._fake, _split(split, model), split.into(queue):
            hidden = None
            if not first:
                hidden = torch.empty(rows, width, self._config.hidden_size, dtype=self._dtype, requires_grad=True)
            with saved_tensors_hooks(kept.add, torch.Tensor.detach), counter:
                for index in indices:
                    weights.bind(index)
                    hidden = self._skeleton.blocks[index].call(model, hidden, inputs)
                assert hidden is not None, "some block ran"
                if last:
                    assert inputs.batch.labels is not None, "made below"
                    hidden = loss_sum(hidden, inputs.batch.labels)
            activation_bytes = kept.num_bytes
            torch.autograd.backward(hidden, torch.empty_like(hidden))
        waiting = kept.like()
        for work in queue:
            for tensor in (work.x, work.g_NO):
                if tensor is not None:
                    waiting.add(tensor)
        return Rehearsed(
            forward_operations=counter.get_total_flops(),
            activation_bytes=activation_bytes,
            waiting_bytes=waiting.num_bytes,
        )

    def _loaded(self, indices: Sequence[int]) -> LoadedModel:
        skeleton = self._skeleton
        num_layers = len(skeleton.blocks) - 2
        part = StageSlice(
            stage=_STAGE, first_layer=0, num_layers=num_layers, is_first=0 in indices, is_last=num_layers + 1 in indices
        )
        return LoadedModel(
            config=self._config,
            family=skeleton.family,
            model=skeleton.model,
            device=torch.device("cpu"),
            layers_by_stage=(num_layers,),
            stages={_STAGE: StageBlocks(part, {index: skeleton.blocks[index] for index in indices})},
            uses=skeleton.uses,
            held={name: self._masters[name] for name in skeleton.uses.names_in(indices)},
        )

    def _inputs(self, rows: int, width: int) -> Inputs:
        mask_BL = torch.zeros(rows, width, dtype=torch.long)
        mask_BL[:, 0] = 1
        # Made of real values, for the library looks at them.
        context = self._skeleton.family.context(self._config, mask_BL, self._dtype)
        ids_BL = torch.zeros(rows, width, dtype=torch.long)
        types_BL = torch.zeros(rows, width, dtype=torch.long)
        batch = Microbatch(tuple(range(rows)), *map(self._faked, (ids_BL, types_BL, mask_BL, self._labels(ids_BL))))
        return Inputs(
            batch, {name: self._faked(value) if value is not None else None for name, value in context.items()}
        )

    def _labels(self, ids_BL: torch.Tensor) -> torch.Tensor:
        if self._skeleton.family.objective is not Objective.CLASSIFICATION:
            return ids_BL.clone()
        of_rows = ids_BL[:, 0].clone()
        return of_rows.float() if self._config.problem_type == "regression" else of_rows

    def _faked(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._fake.from_tensor(tensor)


def _with_shapes_only(skeleton: Skeleton) -> dict[str, nn.Parameter]:
    """Give every parameter and buffer of a skeleton a fake tensor; return the parameters by name."""
    model, uses = skeleton.model, skeleton.uses
    masters = {name: nn.Parameter(torch.empty(model.get_parameter(name).shape)) for name in uses.names}
    for name, master in masters.items():
        for path in uses.paths_of(name):
            prefix, _, attribute = path.rpartition(".")
            setattr(model.get_submodule(prefix), attribute, master)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype))
    return masters


def _columns(inputs: Inputs) -> list[torch.Tensor]:
    batch = inputs.batch
    columns = (batch.input_ids_BL, batch.token_type_ids_BL, batch.attention_mask_BL, batch.labels)
    return [column for column in columns if column is not None]


@contextmanager
def _split(split: SplitBackward, model: nn.Module) -> Iterator[None]:
    """Bind all linear layers of a model for the block."""
    split.bind(model)
    try:
        yield
    finally:
        for module in model.modules():
            vars(module).pop("forward", None)


class _Storages:
    """Distinct storages, and how large they are together."""

    def __init__(self, left_out: Iterable[torch.Tensor]) -> None:
        self._left_out = {_key(tensor): tensor for tensor in left_out}
        self._held: dict[int, torch.UntypedStorage] = {}

    def like(self) -> "_Storages":
        """Return an empty one that leaves out the same."""
        return _Storages(self._left_out.values())

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note the storage of a tensor; return the tensor without its graph."""
        if _key(tensor) not in self._left_out:
            self._held[_key(tensor)] = tensor.untyped_storage()
        return tensor.detach()

    @property
    def num_bytes(self) -> int:
        """Bytes of all that were noted."""
        return sum(storage.nbytes() for storage in self._held.values())


def _key(tensor: torch.Tensor) -> int:
    # The address of what holds the memory; fake tensors have no memory to tell the address of.
    key: int = tensor.untyped_storage()._cdata
    return key


def _attention_operations(query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any) -> int:
    batch, heads, queries, width = query
    return int(2 * batch * heads * queries * key[-2] * (width + value[-1]))


_OPERATIONS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_operations
}
"""What the library cannot count by itself."""
