"""The order in which a run issues training steps, checkpoints, evaluations and the end. Pure."""

from dataclasses import dataclass

from coordinator.events import Item, ItemKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """What a run does, from its first step to its end; one without training steps evaluates once.

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

    def after(self, last: Item | None) -> Item | None:
        """Return the item that follows ``last``: the first one for None, None after the end."""
        if last is None:
            trains = self.total_steps > 0
            return Item(ItemKind.TRAIN, 1, 1) if trains else Item(ItemKind.EVALUATE, 1, 0, self.evaluated[0][0])
        step, after = last.step, last.after
        match last.kind:
            case ItemKind.TRAIN if self._saves(step):
                return Item(ItemKind.SAVE, step, step)
            case ItemKind.TRAIN | ItemKind.SAVE if self._evaluates(after):
                return Item(ItemKind.EVALUATE, 1, after, self.evaluated[0][0])
            case ItemKind.EVALUATE if (following := self._evaluation_after(last)) is not None:
                return following
            case ItemKind.STOP:
                return None
        trains = after < self.total_steps
        return Item(ItemKind.TRAIN, after + 1, after + 1) if trains else Item(ItemKind.STOP, after, after)

    def ends_evaluation(self, item: Item) -> bool:
        """Whether the evaluation of a split is complete with ``item``."""
        return item.kind is ItemKind.EVALUATE and (item.split, item.step) in self.evaluated

    def _evaluation_after(self, last: Item) -> Item | None:
        """Return the next step of an evaluation, on the same split or the next one; None after the last."""
        if not self.ends_evaluation(last):
            return Item(ItemKind.EVALUATE, last.step + 1, last.after, last.split)
        splits = [split for split, _ in self.evaluated]
        left = splits[splits.index(last.split) + 1 :]
        return Item(ItemKind.EVALUATE, 1, last.after, left[0]) if left else None

    def _saves(self, step: int) -> bool:
        return step == self.total_steps or step % self.save_every == 0

    def _evaluates(self, step: int) -> bool:
        if not self.evaluated:
            return False
        if step == self.total_steps and self.evaluate_at_end:
            return True
        return self.evaluate_every is not None and step % self.evaluate_every == 0
