"""New parameters: the same from every layout, since each module has a seed of its own."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from stage_worker.models.seeds import seed_of


@torch.no_grad()
def initialise(model: Any, *, prefix: str, seed: int) -> None:
    """Initialise the module ``prefix`` of a Hugging Face model, and all inside it, by the model's own rules.

    Leaves come before parents: some families rescale a leaf's weight in the rule of its parent.
    The default generator is left as it was.

    Args:
        model: a PreTrainedModel whose module ``prefix`` has memory on the CPU.
        prefix: global module name.
        seed: of the job.
    """
    state = torch.default_generator.get_state()
    for name, module in _leaves_first(prefix, model.get_submodule(prefix)):
        torch.default_generator.manual_seed(seed_of(seed, "parameters", name))
        model._init_weights(module)
    torch.default_generator.set_state(state)


def _leaves_first(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for child_name, child in module.named_children():
        yield from _leaves_first(f"{name}.{child_name}", child)
    yield name, module
