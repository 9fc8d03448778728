"""Whether the workers of a job fit their devices, by prediction."""

from collections.abc import Sequence

from coordinator.byte_size import bytes_of, shown
from coordinator.choices import Recompute
from coordinator.memory import WorkerMemory, predict_memory
from coordinator.partition import StageSlice
from coordinator.parts import ModelParts
from coordinator.problem import Problem
from coordinator.schedule.plan import Plan
from coordinator.spec import JobSpec


def memory_problem(
    spec: JobSpec, parts: ModelParts, *, hidden_size: int, partition: Sequence[StageSlice], plan: Plan
) -> Problem | None:
    """Return what is wrong where a worker needs more than ``limits.device_memory_bytes``; see ``predict_memory``.

    Predictions keep nothing that training does, and always fit.
    """
    given = spec.limits.device_memory_bytes
    if given is None or spec.predict.split is not None:
        return None

    def predicted(recompute: object) -> tuple[WorkerMemory, ...]:
        train = spec.train.model_copy(update={"recompute": recompute})
        changed = spec.model_copy(update={"train": train})
        return predict_memory(changed, parts, hidden_size=hidden_size, partition=partition, plan=plan)

    memory, limit = predicted(spec.train.recompute), bytes_of(given)
    worker, most = max(enumerate(memory), key=lambda each: each[1].total)
    if most.total <= limit:
        return None
    if most.weights > limit:
        fix = "its weights and their state alone are more: needs more stages (parallel.pp), or a smaller model"
    else:
        fix = "needs fewer rows at once (a larger schedule.num_microbatches, a smaller data.max_length)"
        least = max(each.total for each in predicted(Recompute.FULL))
        if least < most.total:
            fix += f", or train.recompute: full, which takes it to {shown(least)}"
        fix += ", or more stages (parallel.pp)"
    return Problem(
        "limits.device_memory_bytes",
        f"is {given}, but worker {worker} needs {most.total} bytes, which are {shown(most.total)} "
        f"({most.described}); {fix}",
    )
