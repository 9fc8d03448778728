"""Whether all values of a tensor are numbers, asked without a copy of it."""

import torch


def is_finite(tensor: torch.Tensor) -> bool:
    """Return whether no value is infinite or no number; ``isfinite`` would take as much memory again."""
    if tensor.numel() == 0:
        return True
    return all(bool(torch.isfinite(bound)) for bound in torch.aminmax(tensor.detach()))  # both are NaN if one value is
