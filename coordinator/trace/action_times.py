"""What the actions of a trace took, and which part of the model took it. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import mean, median

from coordinator.trace.timeline import Span

OPS = ("F", "B", "I", "W")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTime:
    """What one microbatch's action took in seconds: the mean of a step, of these the median over steps."""

    seconds: float
    embeddings: float
    """Of it what the embeddings took, but for what a step's first backward takes longer."""
    layers: float
    head: float
    beside: float
    """Of it what no part of the model took: masks, seeds, the start of a backward."""


def action_times(workers: Iterable[Iterable[Span]]) -> tuple[dict[tuple[int, str], ActionTime], float]:
    """Return what each op of each stage took, and how much longer a step's first backward of the embeddings.

    That one makes the gradient of the table, which the others add to.

    Args:
        workers: compute spans of each, in order of their start.
    """
    steps: defaultdict[tuple[int, str], list[_Mean]] = defaultdict(list)
    longer: list[float] = []
    for spans in workers:
        for step in _by_step(spans).values():
            first = next((action for action in step.values() if action.stage == 0 and action.op in ("B", "I")), None)
            ops: defaultdict[tuple[int, str], list[_Action]] = defaultdict(list)
            for action in step.values():
                ops[action.stage, action.op].append(action)
            if first is not None:
                others = [each.embeddings for each in ops[0, first.op] if each is not first]
                if others:
                    first.making = max(0.0, first.embeddings - mean(others))
                longer.append(first.making)
            for key, actions in ops.items():
                steps[key].append(_Mean(actions))
    times = {
        key: ActionTime(
            seconds=median(each.seconds for each in means),
            embeddings=median(each.embeddings for each in means),
            layers=median(each.layers for each in means),
            head=median(each.head for each in means),
            beside=median(each.beside for each in means),
        )
        for key, means in steps.items()
    }
    return times, median(longer) if longer else 0.0


@dataclass(slots=True, kw_only=True)
class _Action:
    """One action, whose spans may be several."""

    stage: int
    op: str
    seconds: float = 0.0
    embeddings: float = 0.0
    layers: float = 0.0
    head: float = 0.0
    making: float = field(default=0.0)
    """Of the embeddings' seconds those that made the gradient."""


class _Mean:
    """The mean of some actions of a step."""

    def __init__(self, actions: list[_Action]) -> None:
        self.seconds = mean(each.seconds for each in actions)
        self.embeddings = mean(each.embeddings - each.making for each in actions)
        self.layers = mean(each.layers for each in actions)
        self.head = mean(each.head for each in actions)
        self.beside = mean(each.seconds - each.embeddings - each.layers - each.head for each in actions)


def _by_step(spans: Iterable[Span]) -> dict[int, dict[tuple[int, str, int], _Action]]:
    """Return the actions of each step, in order of their start."""
    steps: defaultdict[int, dict[tuple[int, str, int], _Action]] = defaultdict(dict)
    for span in spans:
        if span.name in OPS and span.stage is not None and span.microbatch is not None:
            key = span.stage, span.name, span.microbatch
            action = steps[span.step].setdefault(key, _Action(stage=span.stage, op=span.name))
            action.seconds += span.end - span.start
            action.embeddings += span.embeddings
            action.layers += span.layers
            action.head += span.head
    return steps
