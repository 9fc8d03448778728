"""DualPipeV: DualPipe folded into a V, one copy of the weights."""

from coordinator.schedule.actions import Action, Op
from coordinator.schedule.numbering import StageOp, numbered


def order_dualpipev(worker: int, *, num_workers: int, num_microbatches: int) -> tuple[Action, ...]:
    """Return the compute order of one worker, which holds stage ``worker`` and its mirror in the V.

    DualPipe runs a forward and a backward of the other chunk at once, to hide one's transfers behind the
    other's work; here they run one after the other, forward first. Whole backwards, but for those that a
    worker above waits for while this one has nothing else to do.
    Needs ``2 * num_workers`` microbatches or more.
    Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report (arXiv 2412.19437), DualPipe; folded by Qi et al. 2025,
    "DualPipe could be better without the Dual".
    """
    return numbered(_phases(worker, num_workers, num_microbatches))


def in_flight_dualpipev(*, num_workers: int) -> int:
    """Return how many chunk activations any worker holds at most."""
    return 2 * num_workers + 1


def _phases(worker: int, num_workers: int, num_microbatches: int) -> list[StageOp]:
    """Return what the worker does, in order; ``0`` is its chunk on the way down, ``1`` on the way up."""
    down, up = worker, 2 * num_workers - 1 - worker
    f0, b0, i0 = (down, Op.FORWARD), (down, Op.BACKWARD), (down, Op.INPUT_GRADIENT)
    f1, b1, i1, w1 = (up, Op.FORWARD), (up, Op.BACKWARD), (up, Op.INPUT_GRADIENT), (up, Op.WEIGHT_GRADIENT)
    near, far = worker + 1, num_workers - 1 - worker
    # The second half of the last backwards comes in halves; their W wait for gaps, oldest first.
    last = ([b1, b0] * near)[:near] + ([i1, i0] * near)[near:]
    halves = [half for half in last if half[1] is Op.INPUT_GRADIENT] + [i0] * far
    weights = [(stage, Op.WEIGHT_GRADIENT) for stage, _ in halves]
    return [
        *[f0] * (2 * far),
        *[f0, f1] * near,
        *[i1, w1, f1] * far,
        *[f0, b1, f1, b0] * (num_microbatches - 2 * num_workers + near),
        *[b1, f1, b0] * far,
        *last,
        *(half for weight in weights[:far] for half in (weight, i0)),
        *weights[far:],
    ]
