"""The memory that computations leave alive."""

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


class LiveStorages(TorchDispatchMode):
    """Writes down every storage that is made while it is on, without keeping any."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self._known:
                storage = tensor.untyped_storage()
                self._made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return out

    def live_bytes(self) -> int:
        """Return the bytes that are still there."""
        return sum(size for reference, size in self._made.values() if not reference.expired())
