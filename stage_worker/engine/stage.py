"""One stage: its blocks, and the microbatches that are between their forward and the end of their backward.

B rows, L positions, D hidden.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils.checkpoint import checkpoint

from stage_worker.engine.dropout import DropoutSeeds
from stage_worker.engine.failure import CommandOrderError
from stage_worker.engine.ledger import Ledger, Part
from stage_worker.engine.loss import loss_sum
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.split_backward import SplitBackward, WeightQueue, add_weight_gradients
from stage_worker.engine.weights import Weights
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel

Prepare = Callable[[], Inputs]
"""Makes the inputs of one microbatch; called again where its forward is done again."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """What a microbatch's backward needs of its forward."""

    input_BLD: torch.Tensor | None
    """Leaf that collects the input's gradient; None on the first stage."""
    output: GradientEdge | None
    """Where the backward begins; None where nothing is trained before it.

    Not the output itself: nothing here needs its values again.
    """
    weights: WeightQueue
    """What its backward leaves for later; stays empty on a stage that does not split."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """One microbatch on its way through the blocks."""

    step: int
    microbatch: int
    seeds: DropoutSeeds | None


class Stage:
    """Runs the blocks of one stage on one microbatch at a time, in any order of microbatches."""

    def __init__(
        self,
        model: LoadedModel,
        weights: Weights,
        *,
        stage: int,
        seeds: DropoutSeeds | None,
        recompute: Recompute,
        ledger: Ledger,
    ) -> None:
        """Take the blocks of ``stage``.

        Args:
            model: holds it.
            weights: of all of the model's blocks that are here.
            stage: global index.
            seeds: of dropout; None leaves the generator alone.
            recompute: what is done again.
            ledger: told which part of the model is at work.
        """
        own = model.stages[stage]
        self.is_first = own.slice.is_first
        self.is_last = own.slice.is_last
        self._stage = stage
        self._model = model.model
        self._blocks = tuple(own.blocks.items())
        self._layers = range(self.is_first, self.is_first + own.slice.num_layers)
        """Places of the layers among the blocks; before them are the embeddings, behind them the head."""
        self._weights = weights
        self._seeds = seeds
        self._num_parts = len(self._blocks) + self.is_last
        """Parts of a forward in training: the blocks, then the loss."""
        self._recompute = recompute
        self._ledger = ledger
        self._num_recomputed = self._count_recomputed(own.slice.num_layers)
        self._flights: dict[int, _Flight] = {}
        self._waiting: dict[int, WeightQueue] = {}
        self._splits = own.slice.splits_backward
        self._split = SplitBackward()
        if self._splits:
            for _, module in model.modules(stage):
                self._split.bind(module)

    def _count_recomputed(self, num_layers: int) -> int:
        wanted = self._recompute.num_layers
        if wanted is None:
            return self._num_parts
        return min(wanted, num_layers) + self.is_first if wanted else 0

    @property
    def in_flight(self) -> int:
        """Microbatches whose forward is done and whose backward, both halves of it, is not."""
        return len(self._flights) + len(self._waiting)

    def forward(
        self,
        inputs: Inputs,
        h_BLD: torch.Tensor | None,
        *,
        prepare: Prepare,
        step: int,
        microbatch: int,
        is_last_microbatch: bool,
    ) -> torch.Tensor:
        """Return the hidden state to send on, or on the last stage the sum of the losses; keep the graph.

        Args:
            inputs: of the microbatch.
            h_BLD: hidden state from the stage below; None on the first stage.
            prepare: makes ``inputs`` again.
            step: for dropout.
            microbatch: one that is not in flight.
            is_last_microbatch: whether it is the last one of the step.

        Raises:
            CommandOrderError: the microbatch is in flight already.
        """
        if microbatch in self._flights or microbatch in self._waiting:
            raise CommandOrderError(f"microbatch {microbatch} is in flight on stage {self._stage} already")
        leaf_BLD = h_BLD.requires_grad_() if h_BLD is not None else None
        weights: WeightQueue = []
        going = _Pass(step, microbatch, self._seeds)
        kept_from = 0 if is_last_microbatch and self._recompute.keeps_last else self._num_recomputed
        with self._split.into(weights):
            hidden = leaf_BLD
            if kept_from:
                call = self._repeatable(inputs, prepare, going, stop=kept_from)
                hidden = checkpoint(call, hidden, use_reentrant=False, preserve_rng_state=False)
            output = self._run(hidden, inputs, going, start=kept_from, stop=self._num_parts)
            self._enter_part(None)
        edge = get_gradient_edge(output) if output.requires_grad else None
        self._flights[microbatch] = _Flight(leaf_BLD, edge, weights)
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
        add_weight_gradients(weights, self._ledger)
        self._weights.fold(self._stage)
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
        self._weights.fold(self._stage)
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
        add_weight_gradients(weights, self._ledger)
        self._weights.fold(self._stage)

    def _go_back(self, gradient: torch.Tensor, microbatch: int) -> tuple[torch.Tensor | None, WeightQueue]:
        if microbatch in self._waiting:
            raise CommandOrderError(
                f"the input gradient of microbatch {microbatch} on stage {self._stage} is computed already"
            )
        flight = self._flights.pop(microbatch, None)
        if flight is None:
            raise CommandOrderError(f"microbatch {microbatch} is not in flight on stage {self._stage}")
        if flight.output is not None:
            with self._split.into(flight.weights):
                self._enter_part(Part.HEAD if self.is_last else Part.LAYERS)
                torch.autograd.backward(flight.output, gradient)
                self._enter_part(None)
        return flight.input_BLD.grad if flight.input_BLD is not None else None, flight.weights

    @torch.no_grad()
    def infer(self, inputs: Inputs, h_BLD: torch.Tensor | None) -> torch.Tensor:
        """Return the hidden state to send on, or on the last stage the logits; keep nothing."""
        return self._run(h_BLD, inputs, _Pass(0, 0, None), start=0, stop=len(self._blocks))

    def _repeatable(
        self, inputs: Inputs, prepare: Prepare, going: _Pass, *, stop: int
    ) -> Callable[[torch.Tensor | None], torch.Tensor]:
        """Return the first parts of a forward as a call that may be made again, and lets go of ``inputs`` till then."""
        prepared = [inputs]

        def call(hidden: torch.Tensor | None) -> torch.Tensor:
            current = prepared.pop() if prepared else prepare()
            return self._run(hidden, current, going, start=0, stop=stop)

        return call

    def _run(self, hidden: torch.Tensor | None, inputs: Inputs, going: _Pass, *, start: int, stop: int) -> torch.Tensor:
        for place, (index, block) in enumerate(self._blocks[start:stop], start):
            if place in (self._layers.start, self._layers.stop):
                self._tell_backward(hidden, place)
            self._enter_part(self._part_at(place))
            if going.seeds is not None:
                going.seeds.set(step=going.step, microbatch=going.microbatch, module=block.name)
            self._weights.bind(index)
            hidden = block.call(self._model, hidden, inputs)
        self._enter_part(self._part_at(min(stop, len(self._blocks))))
        assert hidden is not None, f"stage {self._stage} has no block"
        if start <= len(self._blocks) < stop:
            assert inputs.batch.labels is not None, "the last stage reads labels"
            hidden = loss_sum(hidden, inputs.batch.labels)
        return hidden

    def _part_at(self, place: int) -> Part:
        """Return the part of the model of the block at ``place``, or behind the last one."""
        if place < self._layers.start:
            return Part.EMBEDDINGS
        return Part.HEAD if place >= self._layers.stop and self.is_last else Part.LAYERS

    def _tell_backward(self, hidden: torch.Tensor | None, place: int) -> None:
        """Have the backward say when it is through with the block at ``place``, the first one behind ``hidden``."""
        if hidden is not None and hidden.requires_grad and not hidden.is_leaf:
            before = self._part_at(place - 1)
            hidden.register_hook(lambda _: self._enter_part(before))  # type: ignore[no-untyped-call]

    def _enter_part(self, part: Part | None) -> None:
        self._split.part = part
        self._ledger.enter_part(part)
