"""The element types of a job: what layers compute in, and what travels between stages."""

import enum
from dataclasses import dataclass

import torch

from stage_worker.engine.loss_scale import LossScaleSettings


class ComputeType(enum.StrEnum):
    """What layers compute in; the value is its name in the job file. Masters and optimizer state are always fp32."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def dtype(self) -> torch.dtype:
        """Torch's word for it."""
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What holds for all steps of a job."""

    compute: ComputeType = ComputeType.FP32
    fp32_boundaries: bool = False
    """Whether activations and gradients travel in fp32 whatever the layers compute in."""
    loss_scale: LossScaleSettings | None = None
    """Set for fp16 only."""

    @property
    def boundary_dtype(self) -> torch.dtype:
        """Element type of what travels between stages."""
        return torch.float32 if self.fp32_boundaries else self.compute.dtype


FP32 = Precision()
"""Everything in fp32."""
