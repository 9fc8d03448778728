"""The optimizer of one worker's parameters, its groups, and the state that all workers share."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from stage_worker.engine.learning_rate import LearningRate


class OptimizerName(enum.StrEnum):
    """Which optimizer; the value is its name in the job file."""

    ADAMW = "adamw"
    SGD = "sgd"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """What holds for all updates of a job."""

    name: OptimizerName
    learning_rate: LearningRate
    weight_decay: float
    """Never on biases and norm weights."""
    max_grad_norm: float
    """Gradients are scaled down to this global norm; 0 turns it off."""


def decayed_names(model: nn.Module) -> frozenset[str]:
    """Return the parameters of a whole model that decay: all but biases and the weights of norms.

    Decided on the whole skeleton by Hugging Face names, so that no cut changes it.
    """
    return frozenset(
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        if not _is_norm(module)
        for name, _ in module.named_parameters(recurse=False)
        if not name.endswith("bias")
    )


def _is_norm(module: nn.Module) -> bool:
    # Families bring their own norm classes; transformers tells them by name as well.
    return isinstance(module, nn.LayerNorm) or type(module).__name__.endswith(("LayerNorm", "RMSNorm"))


_COUNT_KEY = "step"
_STATE_KEYS: Mapping[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: (_COUNT_KEY, "exp_avg", "exp_avg_sq"),
    torch.optim.SGD: (),
}
"""Tensors that torch keeps for each parameter; the count is a scalar, the others have the parameter's shape."""


Stored = Callable[[str], torch.Tensor | None]
"""From a name such as ``NAME.exp_avg`` to the saved tensor, None where there is none."""


class RestoreError(ValueError):
    """A saved state that does not fit the parameters."""


class Optimizer:
    """Updates parameters by name; counts the updates, which every worker counts alike."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], *, decayed: frozenset[str], settings: OptimizerSettings
    ) -> None:
        """Take the worker's own parameters by Hugging Face name; ``decayed`` names those with weight decay."""
        self.updates_applied = 0
        """State that is the same on all workers; it decides the learning rate."""
        self._parameters = {name: p for name, p in parameters.items() if p.requires_grad}
        self._rate = settings.learning_rate
        self._torch = self._make(decayed, settings) if self._parameters else None

    def _make(self, decayed: frozenset[str], settings: OptimizerSettings) -> torch.optim.Optimizer:
        groups = [
            {
                "params": [p for name, p in self._parameters.items() if (name in decayed) is decays],
                "weight_decay": settings.weight_decay if decays else 0.0,
            }
            for decays in (True, False)
        ]
        groups = [group for group in groups if group["params"]]
        match settings.name:
            case OptimizerName.ADAMW:
                return torch.optim.AdamW(groups, lr=settings.learning_rate.base, fused=True)
            case OptimizerName.SGD:
                return torch.optim.SGD(groups, lr=settings.learning_rate.base, fused=True)

    @property
    def learning_rate(self) -> float:
        """Rate that the next update uses."""
        return self._rate.at(self.updates_applied)

    def is_idle_at_end_of(self, step: int) -> bool:
        """Whether ``step`` is the last that is planned and there was no update yet."""
        return step >= self._rate.total_steps and self.updates_applied == 0

    def apply(self) -> None:
        """Update the parameters by their gradients, count the update."""
        rate = self.learning_rate
        if self._torch is not None:
            for group in self._torch.param_groups:
                group["lr"] = rate
            self._torch.step()
        self.updates_applied += 1

    def restore(self, stored: Stored, *, updates_applied: int) -> None:
        """Go on from what ``state`` returned, of these parameters or of more.

        Raises:
            RestoreError: the state of a parameter is missing, not whole, or of another shape.
        """
        self.updates_applied = updates_applied
        if self._torch is None or not updates_applied:
            return
        keys = _STATE_KEYS[type(self._torch)]
        for name, parameter in self._parameters.items():
            state = {}
            for key in keys:
                tensor = stored(f"{name}.{key}")
                if tensor is None:
                    raise RestoreError(f"the optimizer's {key} of {name} is missing")
                needed = () if key == _COUNT_KEY else tuple(parameter.shape)
                if tuple(tensor.shape) != needed:
                    raise RestoreError(
                        f"the optimizer's {key} of {name} has shape {tuple(tensor.shape)}, {needed} is needed"
                    )
                state[key] = tensor.to(parameter.device, dtype=torch.float32, copy=True)
            self._torch.state[parameter] = state

    def state(self, names: frozenset[str]) -> dict[str, torch.Tensor]:
        """Return the state of the named parameters, such as ``NAME.exp_avg``; empty before the first update."""
        if self._torch is None:
            return {}
        return {
            f"{name}.{key}": value
            for name, parameter in self._parameters.items()
            if name in names
            for key, value in self._torch.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor)
        }
