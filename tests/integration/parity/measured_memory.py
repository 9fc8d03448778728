"""The bytes that the engine's workers really hold, seen from outside: memory behind tensors, and when it is gone."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from stage_worker.engine.split_backward import WeightWork
from stage_worker.engine.stage import Stage
from stage_worker.engine.update import Update
from stage_worker.engine.weights import Weights
from stage_worker.models.family import Inputs

Hook = Callable[[torch.Tensor], Any]


@dataclass
class Measured:
    """What one worker held at its most."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    stages: list[Stage] = field(default_factory=list)
    """Those of the worker."""
    saved: dict[int, tuple[StorageWeakRef, int]] = field(default_factory=dict)
    """Bytes by the storages that forwards saved for backwards; parameters, buffers and the rows themselves left out."""

    def note(self, tensor: torch.Tensor) -> None:
        """Write a storage down without keeping it."""
        storage = tensor.untyped_storage()
        self.saved[storage._cdata] = StorageWeakRef(storage), storage.nbytes()

    def look(self, queue: Iterable[WeightWork] = ()) -> None:
        """See what is alive now: of the storages written down, and of what backwards left for later.

        ``queue`` is what one has just left.
        """
        alive = {key: size for key, (reference, size) in self.saved.items() if not reference.expired()}
        queues = [*(left for stage in self.stages for left in (*stage._waiting.values(), stage._split._queue or ()))]
        waiting = [work for left in queues for work in left]
        for work in (*waiting, *queue):
            storage = work.g_NO.untyped_storage()
            alive[storage._cdata] = storage.nbytes()
        self.activations = max(self.activations, sum(alive.values()))


@contextmanager
def measuring(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Measured]]:
    """Measure all workers whose engines run in the block; by the identity of a worker's model."""
    found: dict[int, Measured] = {}

    def of(stage: Stage) -> Measured:
        measured = found.setdefault(id(stage._model), Measured())
        if stage not in measured.stages:
            measured.stages.append(stage)
        return measured

    def of_weights(weights: Weights) -> Measured:
        every = found.values()
        return next(each for each in every if any(stage._weights is weights for stage in each.stages))

    with monkeypatch.context() as patch:
        _watch_stages(patch, of)
        _watch_updates(patch, of_weights)
        yield found


def _watch_stages(patch: pytest.MonkeyPatch, of: Callable[[Stage], Measured]) -> None:
    forward, run, go_back = Stage.forward, Stage._run, Stage._go_back

    def noting(stage: Stage, inputs: Inputs, pack: Hook, unpack: Hook) -> saved_tensors_hooks:
        batch, measured = inputs.batch, of(stage)
        rows = (batch.input_ids_BL, batch.token_type_ids_BL, batch.attention_mask_BL, batch.labels)
        left_out = [*stage._model.parameters(), *stage._model.buffers(), *(each for each in rows if each is not None)]
        own = {tensor.untyped_storage()._cdata for tensor in left_out}

        def note(tensor: torch.Tensor) -> Any:
            if tensor.untyped_storage()._cdata not in own:
                measured.note(tensor)
            return pack(tensor)

        return saved_tensors_hooks(note, unpack)

    def measured_forward(stage: Stage, inputs: Inputs, *args: Any, **kwargs: Any) -> torch.Tensor:
        with noting(stage, inputs, torch.Tensor.detach, _same):
            output = forward(stage, inputs, *args, **kwargs)
        of(stage).look()
        return output

    def measured_run(
        stage: Stage, hidden: torch.Tensor | None, inputs: Inputs, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        # Of what is computed again the checkpoint's own hooks are on top; they are still called.
        pack, unpack = torch._C._autograd._top_saved_tensors_default_hooks(True) or (torch.Tensor.detach, _same)
        try:
            with noting(stage, inputs, pack, unpack):
                return run(stage, hidden, inputs, *args, **kwargs)
        finally:
            of(stage).look()

    def measured_go_back(stage: Stage, *args: Any, **kwargs: Any) -> Any:
        input_gradient, queue = go_back(stage, *args, **kwargs)
        of(stage).look(queue)
        return input_gradient, queue

    patch.setattr(Stage, "forward", measured_forward)
    patch.setattr(Stage, "_run", measured_run)
    patch.setattr(Stage, "_go_back", measured_go_back)


def _watch_updates(patch: pytest.MonkeyPatch, of: Callable[[Weights], Measured]) -> None:
    fold, add_up, apply = Weights.fold, Update.add_up, Update.apply

    def look(weights: Weights) -> None:
        leaves = [leaf for by_block in weights._leaves.values() for leaf in by_block.values()]
        gradients = [*(leaf.grad for leaf in leaves if leaf.grad is not None), *weights._sums.values()]
        of(weights).gradients = max(of(weights).gradients, sum(gradient.nbytes for gradient in gradients))

    def measured_fold(weights: Weights, stage: int) -> None:
        look(weights)
        fold(weights, stage)

    def measured_add_up(update: Update, *args: Any, **kwargs: Any) -> None:
        weights = update._weights
        look(weights)
        of(weights).parameters = sum(each.nbytes for each in (*weights.masters.values(), *weights._copies.values()))
        add_up(update, *args, **kwargs)

    def measured_apply(update: Update, *args: Any, **kwargs: Any) -> None:
        apply(update, *args, **kwargs)
        optimizer = update._optimizer._torch
        states = optimizer.state.values() if optimizer is not None else ()
        tensors = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
        of(update._weights).optimizer = sum(tensor.nbytes for tensor in tensors)

    patch.setattr(Weights, "fold", measured_fold)
    patch.setattr(Update, "add_up", measured_add_up)
    patch.setattr(Update, "apply", measured_apply)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
