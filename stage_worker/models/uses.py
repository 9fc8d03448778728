"""Which blocks use which parameters: several may use one, by a tie or because they share a module.

Found in the whole skeleton before any part of it gets memory, so every worker finds the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from stage_worker.models.family import Block


@dataclass(frozen=True, slots=True)
class ParameterUses:
    """The parameters of a whole model, each under one name, and the blocks that use them."""

    names: tuple[str, ...]
    """Every parameter once, in the library's order; the names that a saved model has."""
    by_block: tuple[Mapping[str, str], ...]
    """By block: the name of the parameter at each path where the block's modules hold one."""

    def names_in(self, blocks: Sequence[int]) -> tuple[str, ...]:
        """Return the parameters that some blocks use, in canonical order."""
        used = {name for index in blocks for name in self.by_block[index].values()}
        return tuple(name for name in self.names if name in used)

    def blocks_of(self, name: str) -> tuple[int, ...]:
        """Return the blocks that use a parameter, in layer order."""
        return tuple(index for index, uses in enumerate(self.by_block) if name in uses.values())

    def paths_of(self, name: str) -> tuple[str, ...]:
        """Return where the model holds a parameter: under its own name first, then where it is tied to."""
        used = (path for uses in self.by_block for path, other in uses.items() if other == name)
        return tuple(dict.fromkeys((name, *used)))


def uses_of(model: nn.Module, blocks: Sequence[Block]) -> ParameterUses:
    """Return the uses of all parameters of a model whose ties still hold."""
    names = {parameter: name for name, parameter in model.named_parameters()}

    def uses(block: Block) -> dict[str, str]:
        return {
            f"{prefix}.{path}": names[parameter]
            for prefix in block.modules
            for path, parameter in model.get_submodule(prefix).named_parameters(remove_duplicate=False)
        }

    return ParameterUses(tuple(names.values()), tuple(uses(block) for block in blocks))
