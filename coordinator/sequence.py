"""The order in which a run issues training steps, checkpoints, evaluations and the end. Pure."""

from dataclasses import dataclass

from coordinator.events import Item, ItemKind
from coordinator.planning import JobPlan
from coordinator.start import Start

AUTO_CHECKPOINT_STEPS = 100
"""Training steps between two checkpoints where the job leaves it to the coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """What an attempt does, from its first step to its end; one without training steps evaluates once.

    After a training step come, where they are due, its checkpoint and then its evaluation. After the last
    one the checkpoint is always due.
    """

    total_steps: int
    save_every: int
    """Training steps between two checkpoints."""
    evaluate_every: int | None
    """Training steps between two evaluations; none before the end where absent."""
    evaluate_at_end: bool
    evaluated: tuple[tuple[str, int], ...]
    """Splits that an evaluation goes through and the steps that each takes; none where there is nothing to evaluate."""
    begins_after: int = 0
    """Step whose checkpoint the attempt goes on from; 0 where it begins with the first."""
    known: frozenset[tuple[int, str]] = frozenset()
    """Training step and split of evaluations that an earlier attempt has made."""

    def after(self, last: Item | None) -> Item | None:
        """Return the item that follows ``last``: the first one for None, None after the end."""
        if last is None:
            last = Item(ItemKind.SAVE, self.begins_after, self.begins_after)
        after = last.after
        due = self._due_after(after)
        match last.kind:
            case ItemKind.STOP:
                return None
            case ItemKind.TRAIN if after == self.total_steps or after % self.save_every == 0:
                return Item(ItemKind.SAVE, after, after)
            case ItemKind.EVALUATE if not self.ends_evaluation(last):
                return Item(ItemKind.EVALUATE, last.step + 1, after, last.split)
            case ItemKind.EVALUATE:
                due = due[due.index(last.split) + 1 :]
        if due:
            return Item(ItemKind.EVALUATE, 1, after, due[0])
        trains = after < self.total_steps
        return Item(ItemKind.TRAIN, after + 1, after + 1) if trains else Item(ItemKind.STOP, after, after)

    def ends_evaluation(self, item: Item) -> bool:
        """Whether the evaluation of a split is complete with ``item``."""
        return item.kind is ItemKind.EVALUATE and (item.split, item.step) in self.evaluated

    def _due_after(self, step: int) -> list[str]:
        """Return the splits that are to be evaluated after a training step."""
        is_last, every = step == self.total_steps, self.evaluate_every
        is_due = (
            self.total_steps == 0
            or (is_last and self.evaluate_at_end)
            or (step > 0 and every is not None and step % every == 0)
        )
        return [split for split, _ in self.evaluated if is_due and (step, split) not in self.known]


def sequence_of(plan: JobPlan, start: Start) -> Sequence:
    """Return what an attempt of a job does that begins with ``start``."""
    return Sequence(
        total_steps=plan.total_steps,
        save_every=plan.spec.checkpoint.every_steps or AUTO_CHECKPOINT_STEPS,
        evaluate_every=plan.spec.eval.every_steps,
        evaluate_at_end=plan.spec.eval.at_end,
        evaluated=tuple((split.name, split.num_steps) for split in plan.evaluated),
        begins_after=start.step,
        known=start.evaluations,
    )
