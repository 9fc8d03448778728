"""The backward of linear layers in two halves: the input's gradient now, weight and bias gradients later.

N positions of all rows, I features in, O features out.

Note [Where the halves are the whole, bit for bit]: the forward is the layer's own, and both halves call
the products that autograd calls, in its order, for every layer whose input is contiguous or, with two axes,
has contiguous rows; that is all of them in the families here. Two cases use another kernel and agree within
1e-6 only: an input whose rows are the strided axis (autograd then transposes the product that gives the
input's gradient), and an input of three or more axes that is not contiguous and meets an output gradient
that is not contiguous either (autograd then sums the bias gradient over two axes, not one). A parameter that
another kind of module reads as well, such as an embedding tied to a head, gets its parts in another order.
All of this was checked on a CPU.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers.pytorch_utils import Conv1D

from stage_worker.engine.ledger import Ledger, Part

LayerCall = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class WeightWork:
    """What one application of a layer keeps for its weight and bias gradients."""

    weight: torch.Tensor
    """The parameter, not its value: where the gradient is added."""
    bias: torch.Tensor | None
    x: torch.Tensor | None
    """Input of shape (..., I); None where the weight is frozen."""
    g_NO: torch.Tensor
    """Gradient of the output."""
    is_conv1d: bool
    """Whether the weight has shape (I, O)."""
    part: Part | None
    """Where the layer is; None where nobody said."""

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Those that are trained."""
        return [p for p in (self.weight, self.bias) if p is not None and p.requires_grad]

    def gradient(self, parameter: torch.Tensor) -> torch.Tensor:
        """Return the gradient of one of ``parameters``."""
        if parameter is self.bias:
            return self.g_NO.sum(0)
        assert self.x is not None, "a weight that is trained keeps its input"
        x_NI = self.x.reshape(-1, self.x.shape[-1])
        return x_NI.t() @ self.g_NO if self.is_conv1d else self.g_NO.t() @ x_NI


WeightQueue = list[WeightWork]
"""What one microbatch leaves for later on one stage, in the order of its backward."""


@torch.no_grad()
def add_weight_gradients(queue: WeightQueue, ledger: Ledger | None = None) -> None:
    """Add to the parameters' ``grad`` in queue order; empty the queue as it goes.

    A layer that was applied twice gets one sum, as from autograd: (a + b) is not added as a, then b. A ``ledger`` is
    told of each part of the model.
    """
    left = Counter(parameter for work in queue for parameter in work.parameters)
    sums: dict[torch.Tensor, torch.Tensor] = {}
    queue.reverse()
    part: Part | None = None
    while queue:
        work = queue.pop()
        if ledger is not None and work.part is not part:
            part = work.part
            ledger.enter_part(part)
        for parameter in work.parameters:
            gradient = work.gradient(parameter)
            if parameter in sums:
                gradient += sums.pop(parameter)
            left[parameter] -= 1
            if left[parameter]:
                sums[parameter] = gradient
            elif parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient
    if ledger is not None:
        ledger.enter_part(None)


class SplitBackward:
    """Sends the weight gradients of bound layers to the queue that is current; with none they are autograd's."""

    def __init__(self) -> None:
        self._queue: WeightQueue | None = None
        self.part: Part | None = None
        """Of the model, which is running forward."""

    def bind(self, module: nn.Module) -> None:
        """Bind every linear layer inside ``module``; a layer with a forward of its own is left alone."""
        for layer in module.modules():
            for kind in (nn.Linear, Conv1D):
                if type(layer).forward is kind.forward:
                    layer.forward = self._bound(layer, layer.forward, is_conv1d=kind is Conv1D)

    @contextmanager
    def into(self, queue: WeightQueue) -> Iterator[None]:
        """Make ``queue`` current for the block; needed around the forward, and around a backward that runs it again."""
        self._queue = queue
        try:
            yield
        finally:
            self._queue = None

    def _bound(self, layer: Any, forward: LayerCall, *, is_conv1d: bool) -> LayerCall:
        def call(x: torch.Tensor) -> torch.Tensor:
            if self._queue is None:
                return forward(x)
            # The parameters themselves, or a layer whose input needs no gradient would never be queued.
            parameters = layer.weight, layer.bias
            out: torch.Tensor = _Apply.apply(x, *parameters, forward, self._queue, is_conv1d, self.part)  # type: ignore[no-untyped-call]
            return out

        return call


class _Apply(torch.autograd.Function):
    """One application of a layer."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        forward: LayerCall,
        queue: WeightQueue,
        is_conv1d: bool,
        part: Part | None,
    ) -> torch.Tensor:
        ctx.save_for_backward(x if weight.requires_grad else None)
        ctx.layer = weight, bias, queue, is_conv1d, part  # no activations, so nothing for a checkpoint to recompute
        return forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        weight, bias, queue, is_conv1d, part = ctx.layer
        g_NO = g.reshape(-1, g.shape[-1])
        needs_x, *needs_parameters = ctx.needs_input_grad[:3]
        if any(needs_parameters):
            # Detached, or the queue would keep the graph that made the input.
            queue.append(WeightWork(weight, bias, x.detach() if x is not None else None, g_NO, is_conv1d, part))
        x_gradient = None
        if needs_x:
            w_OI = weight.t() if is_conv1d else weight
            x_gradient = (g_NO @ w_OI).view(*g.shape[:-1], w_OI.shape[1])
        return x_gradient, None, None, None, None, None, None
