"""The parameters of one worker: what the layers read, what is trained, and the gradients in between.

Note [One leaf an application]: a parameter that several blocks use, such as ALBERT's one layer or an embedding tied
to a head, has a leaf of its own for each of them: (a + b) + (c + d) is not ((a + b) + c) + d, so sums that autograd
makes by stage would depend on the cut. Leaves share the memory of one tensor; a block reads its own by `bind`.

Note [Masters]: what is trained, the *master*, is fp32. Where layers compute in another type they read a copy, renewed
after every update. Its gradients are in that type for one microbatch; they are added up over microbatches in fp32.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import nn

from stage_worker.models.loaded import LoadedModel


class Weights:
    """Owns every leaf that this worker's blocks read."""

    def __init__(self, model: LoadedModel, *, dtype: torch.dtype) -> None:
        """Take over the parameters of ``model``; its layers compute in ``dtype`` from now on."""
        self.masters: Mapping[str, nn.Parameter] = model.held
        """What is trained, fp32, by name in canonical order."""
        self._leaves: dict[str, dict[int, nn.Parameter]] = {}
        self._copies: dict[str, torch.Tensor] = {}
        self._sums: dict[nn.Parameter, torch.Tensor] = {}
        self._rebound: dict[int, list[tuple[nn.Module, str, nn.Parameter]]] = defaultdict(list)
        self._by_stage: dict[int, list[nn.Parameter]] = {stage: [] for stage in model.stages}
        places: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for stage in model.stages.values():
            for index in stage.blocks:
                for path, name in model.uses.by_block[index].items():
                    places[name][index].append(path)
        for name, master in self.masters.items():
            self._leaves[name] = self._make_leaves(model, name, master, places[name], dtype)
        stage_of_block = model.stage_of_block
        for leaves in self._leaves.values():
            for index, leaf in leaves.items():
                self._by_stage[stage_of_block[index]].append(leaf)

    def _make_leaves(
        self, model: LoadedModel, name: str, master: nn.Parameter, places: Mapping[int, list[str]], dtype: torch.dtype
    ) -> dict[int, nn.Parameter]:
        if master.dtype == dtype and len(places) == 1:
            return dict.fromkeys(places, master)
        memory = master.detach()
        if master.dtype != dtype:
            memory = self._copies[name] = memory.to(dtype)
        leaves = {}
        for index, paths in places.items():
            leaves[index] = nn.Parameter(memory.detach(), requires_grad=master.requires_grad)
            for path in paths:
                prefix, _, attribute = path.rpartition(".")
                module = model.model.get_submodule(prefix)
                setattr(module, attribute, leaves[index])
                if len(places) > 1:
                    self._rebound[index].append((module, attribute, leaves[index]))
        return leaves

    def bind(self, block: int) -> None:
        """Let the modules of a block, which other blocks use too, read the block's own leaves."""
        for module, attribute, leaf in self._rebound.get(block, ()):
            setattr(module, attribute, leaf)

    def fold(self, stage: int) -> None:
        """Take what one microbatch's backward left in the leaves of a stage into sums in fp32.

        Leaves that are fp32 are their own sums.
        """
        if not self._copies:
            return
        for leaf in self._by_stage[stage]:
            if leaf.grad is None:
                continue
            if leaf in self._sums:
                self._sums[leaf] += leaf.grad
            else:
                self._sums[leaf] = leaf.grad.float()
            leaf.grad = None

    def take(self, name: str) -> dict[int, torch.Tensor]:
        """Hand over the gradient of each block that has one, summed over microbatches, in layer order.

        Nothing of it stays here, so that no step keeps gradients twice.
        """
        taken = {}
        for index, leaf in self._leaves[name].items():
            total = self._sums.pop(leaf, None) if self._copies else leaf.grad
            leaf.grad = None
            if total is not None:
                taken[index] = total
        return taken

    def publish(self) -> None:
        """Renew the copies that layers read from the masters."""
        if self._copies:
            with torch.no_grad():
                torch._foreach_copy_(list(self._copies.values()), [self.masters[name] for name in self._copies])

    def clear(self) -> None:
        """Drop the masters' gradients."""
        for master in self.masters.values():
            master.grad = None
