"""Which part of a stage's forward is done again in its backward instead of being kept.

Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016); GPipe (Huang et al. 2019, section 2.3) keeps
a stage's input only.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recompute:
    """What one stage does again for each microbatch."""

    num_layers: int | None = 0
    """First layers that are done again, with the embeddings on the first stage; None: the whole stage, its loss too."""
    keeps_last: bool = False
    """Whether the last microbatch of a step is kept whole."""

    @property
    def is_off(self) -> bool:
        """Whether nothing is done again."""
        return self.num_layers == 0
