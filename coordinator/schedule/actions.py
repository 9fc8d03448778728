"""The words of a plan: ops and actions, and their text form."""

import enum
import re
from dataclasses import dataclass
from typing import NamedTuple


class PlanError(ValueError):
    """A plan that cannot be made, or that breaks a rule."""


class Op(enum.StrEnum):
    """What one action does; the value stands for it in the text form."""

    FORWARD = "F"
    BACKWARD = "B"
    """Whole backward: input gradient and weight gradient."""
    INPUT_GRADIENT = "I"
    """The input's gradient, and the weight gradients that cannot wait."""
    WEIGHT_GRADIENT = "W"
    """The weight gradients that ``I`` left."""
    SEND_ACTIVATION = "SEND_F"
    RECV_ACTIVATION = "RECV_F"
    SEND_GRADIENT = "SEND_B"
    RECV_GRADIENT = "RECV_B"
    REDUCE = "REDUCE"
    STEP = "STEP"

    @property
    def is_compute(self) -> bool:
        """Whether the action runs layers."""
        return self in COMPUTE

    @property
    def is_transfer(self) -> bool:
        """Whether the action moves a tensor between workers."""
        return self in TRANSFERS


COMPUTE = frozenset({Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT})
TRANSFERS = frozenset({Op.SEND_ACTIVATION, Op.RECV_ACTIVATION, Op.SEND_GRADIENT, Op.RECV_GRADIENT})


class Action(NamedTuple):  # a tuple, because a large plan has millions of them
    """One op of one microbatch on one stage.

    ``2F0`` is stage 2, forward, microbatch 0. A transfer carries the stage of the
    worker that it stands on: ``2SEND_F0`` sends stage 2's output to stage 3, which
    has ``3RECV_F0``; ``3SEND_B0`` sends the gradient of stage 3's input to stage 2,
    which has ``2RECV_B0``.
    """

    stage: int
    op: Op
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.op}{self.microbatch}"


@dataclass(frozen=True, slots=True)
class Barrier:
    """An op of a whole worker, once a step: ``REDUCE`` or ``STEP``."""

    op: Op

    def __str__(self) -> str:
        return str(self.op)


Instruction = Action | Barrier
"""One entry of a worker's list."""


def ascending(op: Op, stage: int, *, num_microbatches: int) -> tuple[Action, ...]:
    """Return ``op`` of one stage for every microbatch, from 0 up.

    Raises:
        PlanError: There is no microbatch.
    """
    if num_microbatches < 1:
        raise PlanError(f"num_microbatches is {num_microbatches}, need at least 1")
    return tuple(Action(stage, op, microbatch) for microbatch in range(num_microbatches))


_ACTION = re.compile(r"([0-9]+)(SEND_F|RECV_F|SEND_B|RECV_B|F|B|I|W)([0-9]+)")


def parse(text: str) -> Instruction:
    """Return the action that ``text`` stands for.

    Raises:
        PlanError: ``text`` is no action.
    """
    if text in (Op.REDUCE, Op.STEP):
        return Barrier(Op(text))
    match = _ACTION.fullmatch(text)
    if match is None:
        raise PlanError(f"{text!r} is not an action; write for instance 2F0, 2SEND_F0, REDUCE or STEP")
    stage, op, microbatch = match.groups()
    return Action(int(stage), Op(op), int(microbatch))
