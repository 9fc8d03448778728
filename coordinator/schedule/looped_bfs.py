"""Breadth-first: every microbatch through a chunk before the next chunk's turn."""

from coordinator.schedule.actions import Action, Op, ascending


def order_looped_bfs(worker: int, *, num_workers: int, num_chunks: int, num_microbatches: int) -> tuple[Action, ...]:
    """Return the compute order of one worker: GPipe's, chunk by chunk.

    As fast as interleaved 1F1B and holds every activation, but touches each chunk's weights once forward and
    once backward, which suits weights that are gathered for it. With one chunk it is GPipe.
    Source: Lamy-Poirier 2022, Breadth-First Pipeline Parallelism (arXiv 2211.05953).

    Raises:
        PlanError: There is no microbatch.
    """
    stages = range(worker, num_chunks * num_workers, num_workers)
    return tuple(
        action
        for op, run in ((Op.FORWARD, stages), (Op.BACKWARD, stages[::-1]))
        for stage in run
        for action in ascending(op, stage, num_microbatches=num_microbatches)
    )
