"""What the engine is told to do; decoded from the wire by ``stage_worker.decode``."""

import enum
from dataclasses import dataclass


class Op(enum.Enum):
    """What one command does."""

    FORWARD = enum.auto()
    BACKWARD = enum.auto()
    INPUT_GRADIENT = enum.auto()
    WEIGHT_GRADIENT = enum.auto()
    SEND_ACTIVATION = enum.auto()
    RECV_ACTIVATION = enum.auto()
    SEND_GRADIENT = enum.auto()
    RECV_GRADIENT = enum.auto()
    REDUCE = enum.auto()
    STEP = enum.auto()
    SAVE = enum.auto()
    STOP = enum.auto()

    @property
    def is_compute(self) -> bool:
        """Whether the command runs layers on one microbatch."""
        return self in (Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)

    @property
    def is_transfer(self) -> bool:
        """Whether the command moves a tensor of one microbatch between workers."""
        return self in (Op.SEND_ACTIVATION, Op.RECV_ACTIVATION, Op.SEND_GRADIENT, Op.RECV_GRADIENT)


class Phase(enum.Enum):
    """Whether a step changes weights."""

    TRAIN = enum.auto()
    EVALUATE = enum.auto()


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``stage`` is global; ``peer`` is the worker at a transfer's other end."""

    op: Op
    stage: int = 0
    microbatch: int = 0
    peer: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows and padded width of one microbatch; ``rows`` may be 0."""

    rows: int
    width: int


@dataclass(frozen=True, slots=True)
class StepSetting:
    """What holds for all commands of one step of one replica."""

    phase: Phase
    split: str
    step: int
    """From 1, counted per phase."""
    denominator: int
    """Rows of the global batch: what the sum of the losses is divided by."""
    microbatches: tuple[Shape, ...]
    after: int = 0
    """Training step that it trains, or whose weights it evaluates; the engine does not look at it."""


@dataclass(frozen=True, slots=True)
class StepCommands:
    """A run of commands of one step: the whole step, or one command where the coordinator is strict."""

    setting: StepSetting
    first_seq: int
    commands: tuple[Command, ...]
    ends_step: bool
    """Whether they are the last ones of the step; a report follows."""
    acknowledge: bool = False
    """Whether the coordinator waits to hear that the last of them is done."""
