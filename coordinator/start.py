"""Where an attempt begins: after which checkpoint, and what earlier attempts have done behind it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.records import EvaluationRecord, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedState:
    """What every worker has alike after a step."""

    updates_applied: int
    """Optimizer updates so far."""
    loss_scale: float | None = None
    """Loss scale of the next step; fp16 only."""
    clean_steps: int = 0
    """Steps without overflow since the loss scale changed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """The checkpoint of the job's own folder that an attempt goes on from."""

    step: int
    parameters: tuple[str, ...]
    """Names of the files that hold parameters."""
    optimizer: tuple[str, ...]
    """Names of the files that hold the optimizer's state."""
    agreed: AgreedState


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An attempt that another coordinator began, and how far the journal says that it has come."""

    step: int
    """Last committed step."""
    is_saved: bool
    """Whether the checkpoint of that step is complete."""
    evaluations: frozenset[tuple[int, str]]
    """Training step and split of all evaluations that were made."""


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to go on from."""

    saved: SavedState | None
    """None: nothing; the attempt begins with step 1."""
    notices: tuple[str, ...] = ()
    """Checkpoints that could not be used, and why, for the people who run the job."""


class ReplayError(ValueError):
    """A step that was done again came out otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where an attempt begins."""

    step: int = 0
    """Step that it begins after."""
    saved: SavedState | None = None
    """What it goes on from; None where it begins with step 1, or has begun long ago."""
    steps: Mapping[int, StepRecord] = field(default_factory=dict)
    """Committed steps that it does again."""
    evaluations: frozenset[tuple[int, str]] = frozenset()
    """Training step and split of the evaluations that were made."""
    notices: tuple[str, ...] = ()
    """What people should know of how this start was found."""

    @classmethod
    def after(cls, found: Found, steps: list[StepRecord], evaluations: list[EvaluationRecord]) -> "Start":
        """Return the start behind ``found`` of a job that has all of ``steps`` and ``evaluations`` in its journal."""
        step = 0 if found.saved is None else found.saved.step
        return cls(
            step=step,
            saved=found.saved,
            notices=found.notices,
            steps={record.step: record for record in steps if record.step > step},
            evaluations=frozenset((record.step, record.split) for record in evaluations),
        )

    @property
    def committed(self) -> int:
        """Last step in the journal, at least the one that the attempt begins after."""
        return max(self.steps, default=self.step)

    def is_replayed(self, step: StepRecord) -> bool:
        """Whether a step is in the journal already.

        Raises:
            ReplayError: it is, and was another one.
        """
        known = self.steps.get(step.step)
        if known is None:
            return False
        for name in ("loss", "grad_norm", "learning_rate", "loss_scale", "skipped", "examples", "tokens"):
            before, now = getattr(known, name), getattr(step, name)
            if before != now:
                raise ReplayError(
                    f"replay differs: step {step.step} had {name} {before!r}, and has {now!r} when it is done again "
                    "from the same state; its data, its model's code or its machine is not what it was"
                )
        return True
