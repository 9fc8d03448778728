"""What a worker computes again before a backward instead of keeping it from the forward."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.schedule.actions import COMPUTE, Action, Instruction, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """How much of each stage's forward runs a second time, right before the backward of the same microbatch.

    Of what it runs again a stage keeps only its input.
    """

    parts: tuple[int, ...]
    """Parts of each stage's forward that run again, stage 0 first; from 0, nothing, to ``whole``, all of it."""
    whole: int = 1
    """Equal parts that the forward of any stage is counted in."""
    kept_microbatch: int | None = None
    """Microbatch of the step of which nothing is computed again; None where there is no such one."""

    @classmethod
    def of_layers(cls, again: Sequence[int], *, layers: Sequence[int]) -> "Recompute":
        """Return that stage s, which has ``layers[s]`` layers, runs ``again[s]`` of them again, or all if it has fewer.

        Layers cost the same; what else stages 0 and the last one compute is not counted.
        """
        whole = math.lcm(*layers)
        parts = tuple(min(one, most) * whole // most for one, most in zip(again, layers, strict=True))
        return cls(parts=parts, whole=whole)

    def parts_of(self, action: Action) -> int:
        """Return the parts of its stage's forward that run again for the microbatch of ``action``."""
        return 0 if action.microbatch == self.kept_microbatch else self.parts[action.stage]


BACKWARD_BEGINS = frozenset({Op.BACKWARD, Op.INPUT_GRADIENT})
BACKWARD_ENDS = frozenset({Op.BACKWARD, Op.WEIGHT_GRADIENT})


def peak_activations(instructions: Sequence[Instruction], recompute: Recompute) -> int:
    """Return the most that a worker holds at once, in parts of one stage's activations.

    From the start of its ``F`` a microbatch holds what its stage does not compute again, from the start of its
    backward all of the stage, until the end of ``B``, or of ``W`` where the backward is split. The input of a
    stage is not counted. Where nothing is computed again that is what ``peak_in_flight`` counts; as there, a
    list without backwards holds an activation only while ``F`` runs.
    """
    keeps = any(instruction.op in BACKWARD_ENDS for instruction in instructions)
    held = peak = 0
    for action in instructions:
        if not isinstance(action, Action) or action.op not in COMPUTE:
            continue
        if action.op is Op.FORWARD:
            held += recompute.whole - recompute.parts_of(action)
        elif action.op in BACKWARD_BEGINS:
            held += recompute.parts_of(action)
        peak = max(peak, held)
        if action.op in BACKWARD_ENDS:
            held -= recompute.whole
        elif not keeps:
            held = 0
    return peak
