"""The rows of one microbatch, as the engine wants them."""

from dataclasses import dataclass
from typing import Protocol

import torch

from stage_worker.engine.commands import StepSetting


@dataclass(frozen=True, slots=True)
class Microbatch:
    """Columns of one microbatch; a column that this worker's stages do not need is None.

    B rows, L positions.
    """

    row_ids: tuple[int, ...]
    input_ids_BL: torch.Tensor | None
    token_type_ids_BL: torch.Tensor | None
    attention_mask_BL: torch.Tensor | None
    labels_B: torch.Tensor | None


class BatchSource(Protocol):
    """Where the engine gets rows from; reads ahead as far as it was told of steps."""

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        """Return one microbatch of the step; wait for it, but not for ever.

        Raises:
            DataError: it did not come in time, or the service refused.
        """


class DataError(RuntimeError):
    """Rows that a step needs cannot be had."""
