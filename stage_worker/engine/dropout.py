"""The seeds of dropout."""

from dataclasses import dataclass

import torch

from stage_worker.models.seeds import seed_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DropoutSeeds:
    """Seeds the dropout of one replica; the masks follow the microbatch, whatever stage draws them."""

    seed: int
    dp_rank: int
    device: torch.device

    def set(self, *, step: int, microbatch: int, module: str) -> None:
        """Set the device's default generator for one block of one microbatch."""
        number = seed_of(self.seed, "dropout", step, self.dp_rank, microbatch, module)
        if self.device.type == "cuda":
            index = self.device.index if self.device.index is not None else torch.cuda.current_device()
            torch.cuda.default_generators[index].manual_seed(number)
        else:
            torch.default_generator.manual_seed(number)  # 1 us where torch.manual_seed takes 142
