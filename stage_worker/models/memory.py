"""Whether a worker's weights fit its device at all, asked before the allocator is."""

import os

import torch

_FP32_BYTES = 4


class ModelTooLargeError(ValueError):
    """A part of a model that its worker cannot hold."""


def check_memory(num_parameters: int, device: torch.device) -> None:
    """Refuse what cannot fit: fp32 weights alone, without gradients, moments and activations.

    Raises:
        ModelTooLargeError: says how much is needed, and how much there is.
    """
    needed, there = num_parameters * _FP32_BYTES, _device_bytes(device)
    if needed > there:
        raise ModelTooLargeError(
            f"the stages of this worker have {num_parameters:,} parameters, whose fp32 weights alone take "
            f"{needed / 2**30:,.0f} GiB; this worker has {there / 2**30:,.0f} GiB: "
            "needs more stages (parallel.pp) or a smaller model"
        )


def _device_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
