"""The running statistics of batch norm layers, moved once a step by the rows of the whole mini-batch.

C channels.

Note [One batch a step]: in training each microbatch is normalised by its own statistics, and the running ones, which
evaluation reads, follow the mini-batch: the rows of all microbatches and replicas together (GPipe, Huang et al. 2019,
section 2.3). They are moved with the weights, or not at all. Counted is what a layer sees, padded positions too, each
microbatch once however often its forward is done. A frozen layer's statistics move like any other's, as torch has it.

Note [No order is seen]: microbatches are added in the order of their numbers and replicas in that of their ranks, in
float64. So no schedule changes the bits, and all replicas keep the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it

from stage_worker.models.families import UnsupportedModelError
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.running_statistics import layers_with_statistics


@dataclass(frozen=True, slots=True)
class _Part:
    """What a layer saw of one microbatch."""

    count: int
    """Values of each channel."""
    mean_C: torch.Tensor
    variance_C: torch.Tensor
    """Unbiased."""

    def sums(self) -> torch.Tensor:
        """Return count, sum and sum of squares of each channel, in one vector in float64."""
        mean_C, variance_C = self.mean_C.double(), self.variance_C.double()
        squares_C = variance_C * (self.count - 1) + mean_C.square() * self.count
        return torch.cat([mean_C.new_tensor([self.count]), mean_C * self.count, squares_C])


@dataclass(slots=True)
class _Layer:
    """One layer of this worker."""

    name: str
    module: Any
    parts: dict[int, _Part] = field(default_factory=dict)
    """By microbatch."""

    def sums(self) -> torch.Tensor:
        """Return the sums over this replica's microbatches, in microbatch order."""
        total = torch.zeros(self.length, dtype=torch.float64, device=self.module.running_mean.device)
        for microbatch in sorted(self.parts):
            total += self.parts[microbatch].sums()
        return total

    @property
    def length(self) -> int:
        """Elements of ``sums``."""
        return 1 + 2 * int(self.module.num_features)

    def move(self, sums: torch.Tensor) -> None:
        """Move the running statistics by one batch with these sums, on the CPU; by none where it has no rows."""
        count, (sum_C, squares_C) = float(sums[0]), sums[1:].view(2, -1)
        if not count:
            return
        mean_C = sum_C / count
        variance_C = (squares_C - mean_C * sum_C).clamp_(min=0.0) / (count - 1)
        self.module.num_batches_tracked += 1
        momentum = self.module.momentum
        share = 1.0 / float(self.module.num_batches_tracked) if momentum is None else float(momentum)
        for running_C, batch_C in ((self.module.running_mean, mean_C), (self.module.running_var, variance_C)):
            running_C.copy_(running_C.double().lerp_(batch_C.to(running_C.device), share))


class RunningStatistics:
    """The batch norm layers of one worker; with none of them every call does nothing."""

    def __init__(self, model: LoadedModel) -> None:
        """Take charge of the layers' forwards and buffers."""
        found = (
            _Layer(name, module)
            for stage in model.stages
            for prefix, parent in model.modules(stage)
            for name, module in layers_with_statistics(parent, prefix=prefix)
        )
        self._layers = tuple(found)
        self._microbatch: int | None = None
        self._total: torch.Tensor | None = None
        for layer in self._layers:
            layer.module.forward = self._bound(layer)

    @contextmanager
    def counting(self, microbatch: int) -> Iterator[None]:
        """Count the rows that training forwards see in the block; outside of one, as when one is done again, none."""
        self._microbatch = microbatch
        try:
            yield
        finally:
            self._microbatch = None

    def _bound(self, layer: _Layer) -> Callable[[torch.Tensor], torch.Tensor]:
        module = layer.module

        def call(x: torch.Tensor) -> torch.Tensor:
            module._check_input_dim(x)
            mean_C, variance_C = module.running_mean, module.running_var
            if module.training:
                # With a momentum of 1 torch leaves here the statistics of what it was given, and of that alone.
                mean_C, variance_C = torch.zeros_like(mean_C), torch.zeros_like(variance_C)
            # Statistics in fp32 want weights in fp32, whatever the layers compute in.
            weight_C, bias_C = (p.float() if p is not None else None for p in (module.weight, module.bias))
            out = F.batch_norm(x, mean_C, variance_C, weight_C, bias_C, module.training, 1.0, module.eps)
            if module.training and self._microbatch is not None:
                self._count(layer, _Part(x.numel() // x.shape[1], mean_C, variance_C))
            return out

        return call

    def _count(self, layer: _Layer, part: _Part) -> None:
        assert self._microbatch is not None, "called in a block of counting"
        if self._microbatch in layer.parts:
            raise UnsupportedModelError(
                f"{layer.name} keeps running statistics and is applied more than once to microbatch "
                f"{self._microbatch}; such a layer is covered where it is applied once"
            )
        layer.parts[self._microbatch] = part

    def add_up(self, add: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Add what was counted over microbatches, then over replicas; nothing moves yet.

        Args:
            add: returns the sum of the replicas' vectors.
        """
        if self._layers:
            self._total = add(torch.cat([layer.sums() for layer in self._layers]))

    @torch.no_grad()
    def move(self) -> None:
        """Move the running statistics by what ``add_up`` found."""
        if self._total is None:
            return
        parts = torch.split(self._total.cpu(), [layer.length for layer in self._layers])
        for layer, sums in zip(self._layers, parts, strict=True):
            layer.move(sums)

    def clear(self) -> None:
        """Forget what was counted."""
        self._total = None
        for layer in self._layers:
            layer.parts.clear()
