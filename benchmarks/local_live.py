"""Counts the activations that a worker really holds, by the memory behind them; asks the engine's counters nothing."""

from dataclasses import dataclass, field

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from stage_worker.engine.commands import Command, Op
from stage_worker.models.loaded import LoadedModel

Key = tuple[int, int]
"""Stage, microbatch."""


@dataclass(slots=True)
class _Saved:
    """What one forward saved, by storage; a storage lives on while anything refers to it."""

    sizes: dict[StorageWeakRef, int] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Bytes that are still alive."""
        alive = [size for storage, size in self.sizes.items() if not storage.expired()]  # type: ignore[no-untyped-call]
        return sum(alive)


class LiveActivations(saved_tensors_hooks):
    """Sees every tensor that a forward saves for a backward. Use as a context manager around the engine's calls.

    A microbatch is held on a stage from its forward until the last of these tensors is gone, whoever keeps it:
    the graph, a weight gradient that waits, or a cycle of references that nobody collected.
    """

    def __init__(self, model: LoadedModel) -> None:
        """Watch one worker's stages; their own parameters and buffers are no activations."""
        super().__init__(self._save, lambda tensor: tensor)
        modules = [module for stage in model.stages for _, module in model.modules(stage)]
        own = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        self._own = {tensor.untyped_storage().data_ptr() for tensor in own}
        self._saving = _Saved()
        self._held: dict[Key, _Saved] = {}
        self.peak = 0
        """Most microbatches held at once, over the worker's stages."""
        self.peak_bytes = 0
        """Most bytes held for them at the end of a forward."""
        self.share_between_halves = 0.0
        """Most of a forward's bytes that was still held between the two halves of its backward, from 0 to 1."""

    @property
    def num_held(self) -> int:
        """Microbatches held now, over the worker's stages."""
        return sum(saved.num_bytes > 0 for saved in self._held.values())

    def command_done(self, command: Command, seq: int) -> None:
        """Look at what is held; called after each command of the engine."""
        key = (command.stage, command.microbatch)
        if command.op is Op.FORWARD and self._saving.sizes:
            self._held[key], self._saving = self._saving, _Saved()
            self.peak = max(self.peak, self.num_held)
            self.peak_bytes = max(self.peak_bytes, sum(saved.num_bytes for saved in self._held.values()))
        elif command.op is Op.INPUT_GRADIENT and key in self._held:
            saved = self._held[key]
            share = saved.num_bytes / sum(saved.sizes.values())
            self.share_between_halves = max(self.share_between_halves, share)

    def _save(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._own:
            self._saving.sizes[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]
        return tensor.detach()  # a graph that kept its own output would never be freed
