"""One stage: its blocks, and the microbatches that are between their forward and their backward.

B rows, L positions, D hidden, C classes.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it

from stage_worker.engine.dropout import DropoutSeeds
from stage_worker.engine.failure import CommandOrderError
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel


@dataclass(frozen=True, slots=True)
class _Flight:
    """What a microbatch's backward needs of its forward."""

    input_BLD: torch.Tensor | None
    """Leaf that collects the input's gradient; None on the first stage."""
    output: torch.Tensor
    """Hidden state, or the sum of the losses on the last stage."""


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

    @property
    def in_flight(self) -> int:
        """Microbatches whose forward is done and whose backward is not."""
        return len(self._flights)

    def forward(self, inputs: Inputs, h_BLD: torch.Tensor | None, *, step: int, microbatch: int) -> torch.Tensor:
        """Return the hidden state to send on, or on the last stage the sum of the rows' losses; keep the graph.

        Raises:
            CommandOrderError: the microbatch is in flight already.
        """
        if microbatch in self._flights:
            raise CommandOrderError(f"microbatch {microbatch} is in flight on stage {self._stage} already")
        leaf_BLD = h_BLD.requires_grad_() if h_BLD is not None else None
        output = self._call(inputs, leaf_BLD, step=step, microbatch=microbatch, seeds=self._seeds)
        if self.is_last:
            output = loss_sum(output, inputs.batch.labels_B)
        self._flights[microbatch] = _Flight(leaf_BLD, output)
        return output.detach()

    def backward(self, gradient: torch.Tensor, *, microbatch: int) -> torch.Tensor | None:
        """Add to the parameters' gradients; return the input's gradient, None on the first stage.

        Args:
            gradient: of what ``forward`` returned.
            microbatch: one that is in flight.

        Raises:
            CommandOrderError: the microbatch is not in flight.
        """
        flight = self._flights.pop(microbatch, None)
        if flight is None:
            raise CommandOrderError(f"microbatch {microbatch} is not in flight on stage {self._stage}")
        torch.autograd.backward(flight.output, gradient)
        return flight.input_BLD.grad if flight.input_BLD is not None else None

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
