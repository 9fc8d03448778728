"""Seeds: everything random is a pure function of what it is for."""

import hashlib
from dataclasses import dataclass

import torch


def seed_of(*words: str | int) -> int:
    """Return 64 bits that depend on all of ``words`` and on their order, the same on every machine."""
    text = "/".join(str(word) for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


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
