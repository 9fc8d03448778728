"""Which step's rows are read next. Pure: it knows no thread, no socket and no row."""

from stage_worker.engine.commands import Phase

Pass = tuple[Phase, str]
"""A phase and a split, whose steps come one after the other."""
Key = tuple[Phase, str, int]
"""One step of a pass."""


class ReadAhead:
    """Picks steps that were commanded first, then those that will be, and never holds too many.

    A step need not be commanded to be read: its rows are a function of its number. So what delays the rows of a step
    shorter than a call, or keeps the data service away for a while, does not delay the step.
    """

    def __init__(self, *, num_ahead: int, most_held: int) -> None:
        """Begin with nothing to read.

        Args:
            num_ahead: steps beyond the last commanded one of their pass that are read too.
            most_held: steps begun and not released. Commanded steps count by themselves, so that none waits for
                one that is only read ahead.
        """
        self._num_ahead = num_ahead
        self._most_held = most_held
        self._expected: dict[Key, None] = {}
        self._held: set[Key] = set()
        self._last: dict[Pass, int] = {}
        """Last step that was commanded; the pass that was commanded last stands last."""
        self._ends: dict[Pass, int] = {}
        """First step that could not be had, as far as it was tried."""

    def expect(self, key: Key, *, has_rows: bool) -> None:
        """Note that a step is commanded; again does nothing, and one without rows is not read."""
        if key in self._expected:
            return
        *_, step = key
        self._last.pop(_pass_of(key), None)
        self._last[_pass_of(key)] = step
        if self._ends.get(_pass_of(key), step + 1) <= step:
            del self._ends[_pass_of(key)]  # who commands it knows better
        if has_rows:
            self._expected[key] = None

    def is_expected(self, key: Key) -> bool:
        """Whether a step is commanded and not released."""
        return key in self._expected

    def begin_next(self) -> Key | None:
        """Return the step to be read next, held from now on; None while there is none."""
        key = self._next()
        if key is not None:
            self._held.add(key)
        return key

    def refuse(self, key: Key) -> None:
        """Note that a step cannot be had, nor what is after it; it is read again where it is commanded later."""
        *_, step = key
        self._ends[_pass_of(key)] = min(step, self._ends.get(_pass_of(key), step))
        if key not in self._expected:
            self._held.discard(key)

    def release(self, key: Key) -> None:
        """Forget a step that is done."""
        self._expected.pop(key, None)
        self._held.discard(key)

    def _next(self) -> Key | None:
        waiting = [key for key in self._expected if key not in self._held]
        if len(self._expected) - len(waiting) < self._most_held and waiting:
            return waiting[0]
        if waiting or len(self._held) >= self._most_held:
            return None
        for (phase, split), last in reversed(self._last.items()):
            end = self._ends.get((phase, split), last + self._num_ahead + 1)
            for step in range(last + 1, min(last + self._num_ahead + 1, end)):
                if (phase, split, step) not in self._held:
                    return phase, split, step
        return None


def _pass_of(key: Key) -> Pass:
    phase, split, _ = key
    return phase, split
