"""One stage: its blocks, and the microbatches that are between their forward and the end of their backward.

B rows, L positions, D hidden, C classes.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch.autograd.graph import GradientEdge, get_gradient_edge

from stage_worker.engine.dropout import DropoutSeeds
from stage_worker.engine.failure import CommandOrderError
from stage_worker.engine.split_backward import SplitBackward, WeightQueue, add_weight_gradients
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel


@dataclass(frozen=True, slots=True)
class _Flight:
    """What a microbatch's backward needs of its forward."""

    input_BLD: torch.Tensor | None
    """Leaf that collects the input's gradient; None on the first stage."""
    output: GradientEdge
    """Where the backward begins. Not the output itself: nothing here needs its values again."""
    weights: WeightQueue
    """What its backward leaves for later; stays empty on a stage that does not split."""


class Stage:
    """Runs the blocks of one stage on one microbatch at a time, in any order of microbatches."""

    def __init__(self, model: LoadedModel, *, stage: int, seeds: DropoutSeeds | None) -> None:
        """Take the blocks of ``stage``; ``seeds`` is None where the model has no dropout."""
        own = model.stages[stage]
        self.is_first = own.slice.is_first
        self.is_last = own.slice.is_last
        self._stage = stage
        self._model = model.model
        self._blocks = own.blocks
        self._seeds = seeds
        self._flights: dict[int, _Flight] = {}
        self._waiting: dict[int, WeightQueue] = {}
        self._splits = own.slice.splits_backward
        self._split = SplitBackward()
        if self._splits:
            for _, module in model.modules(stage):
                self._split.bind(module)

    @property
    def in_flight(self) -> int:
        """Microbatches whose forward is done and whose backward, both halves of it, is not."""
        return len(self._flights) + len(self._waiting)

    def forward(self, inputs: Inputs, h_BLD: torch.Tensor | None, *, step: int, microbatch: int) -> torch.Tensor:
        """Return the hidden state to send on, or on the last stage the sum of the rows' losses; keep the graph.

        Raises:
            CommandOrderError: the microbatch is in flight already.
        """
        if microbatch in self._flights or microbatch in self._waiting:
            raise CommandOrderError(f"microbatch {microbatch} is in flight on stage {self._stage} already")
        leaf_BLD = h_BLD.requires_grad_() if h_BLD is not None else None
        weights: WeightQueue = []
        with self._split.into(weights):
            output = self._call(inputs, leaf_BLD, step=step, microbatch=microbatch, seeds=self._seeds)
        if self.is_last:
            output = loss_sum(output, inputs.batch.labels_B)
        self._flights[microbatch] = _Flight(leaf_BLD, get_gradient_edge(output), weights)
        return output.detach()

    def backward(self, gradient: torch.Tensor, *, microbatch: int) -> torch.Tensor | None:
        """Add to the parameters' gradients; return the input's gradient, None on the first stage.

        Args:
            gradient: of what ``forward`` returned.
            microbatch: one that is in flight.

        Raises:
            CommandOrderError: the microbatch is not in flight, or half of its backward is done.
        """
        input_gradient, weights = self._go_back(gradient, microbatch)
        add_weight_gradients(weights)
        return input_gradient

    def input_gradient(self, gradient: torch.Tensor, *, microbatch: int) -> torch.Tensor | None:
        """Do the first half of ``backward``: all but the gradients of linear layers' parameters.

        Only what those need is kept: the layers' inputs and output gradients, without the graph.

        Raises:
            CommandOrderError: as ``backward``; or the stage does not split its backward.
        """
        if not self._splits:
            raise CommandOrderError(f"stage {self._stage} was not told to split its backward; send it BACKWARD")
        input_gradient, self._waiting[microbatch] = self._go_back(gradient, microbatch)
        return input_gradient

    def weight_gradient(self, *, microbatch: int) -> None:
        """Do the second half of ``backward``.

        Raises:
            CommandOrderError: the first half is not done, or this one is.
        """
        if microbatch in self._flights:
            raise CommandOrderError(
                f"the input gradient of microbatch {microbatch} on stage {self._stage} is not computed yet"
            )
        weights = self._waiting.pop(microbatch, None)
        if weights is None:
            raise CommandOrderError(f"microbatch {microbatch} is not in flight on stage {self._stage}")
        add_weight_gradients(weights)

    def _go_back(self, gradient: torch.Tensor, microbatch: int) -> tuple[torch.Tensor | None, WeightQueue]:
        if microbatch in self._waiting:
            raise CommandOrderError(
                f"the input gradient of microbatch {microbatch} on stage {self._stage} is computed already"
            )
        flight = self._flights.pop(microbatch, None)
        if flight is None:
            raise CommandOrderError(f"microbatch {microbatch} is not in flight on stage {self._stage}")
        with self._split.into(flight.weights):
            torch.autograd.backward(flight.output, gradient)
        return flight.input_BLD.grad if flight.input_BLD is not None else None, flight.weights

    @torch.no_grad()
    def infer(self, inputs: Inputs, h_BLD: torch.Tensor | None) -> torch.Tensor:
        """Return the hidden state to send on, or on the last stage the logits; keep nothing."""
        return self._call(inputs, h_BLD, step=0, microbatch=0, seeds=None)

    def _call(
        self,
        inputs: Inputs,
        h_BLD: torch.Tensor | None,
        *,
        step: int,
        microbatch: int,
        seeds: DropoutSeeds | None,
    ) -> torch.Tensor:
        hidden = h_BLD
        for block in self._blocks:
            if seeds is not None:
                seeds.set(step=step, microbatch=microbatch, module=block.name)
            hidden = block.call(self._model, hidden, inputs)
        assert hidden is not None, f"stage {self._stage} has no block"
        return hidden


def loss_sum(logits_BC: torch.Tensor, labels_B: torch.Tensor | None) -> torch.Tensor:
    """Return the sum of the rows' cross entropies in fp32; it is divided once, by the global count, as it goes back."""
    assert labels_B is not None, "the last stage reads labels"
    return F.cross_entropy(logits_BC.float(), labels_B, reduction="sum")
