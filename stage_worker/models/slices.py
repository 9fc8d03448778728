"""Which blocks a stage holds."""

from dataclasses import dataclass

from stage_worker.models.family import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSlice:
    """The layers of one stage; the first stage has the embeddings as well, the last one the head."""

    stage: int
    first_layer: int
    num_layers: int
    is_first: bool
    is_last: bool
    splits_backward: bool = False
    """Whether any of its backwards comes in two halves."""

    def blocks(self, blocks: tuple[Block, ...]) -> dict[int, Block]:
        """Return the stage's share of all of a model's blocks, by their place among them.

        Raises:
            ValueError: the layers are not all in the model.
        """
        num_layers = len(blocks) - 2
        end = self.first_layer + self.num_layers
        if not 0 <= self.first_layer <= end <= num_layers:
            raise ValueError(
                f"stage {self.stage} has layers {self.first_layer} to {end - 1}, but the model has {num_layers}"
            )
        start = 0 if self.is_first else self.first_layer + 1
        stop = len(blocks) if self.is_last else end + 1
        return {index: blocks[index] for index in range(start, stop)}
