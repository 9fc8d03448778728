"""A plan beside what was measured of it, on one clock. Pure."""

from coordinator.schedule.plan import Plan
from coordinator.trace.expected import expected_timeline
from coordinator.trace.measured import measured_costs
from coordinator.trace.planned import planned_trace, repeated
from coordinator.trace.timeline import Trace, Track


def planned_beside(measured: Trace, plan: Plan, *, step: int | None = None) -> Trace:
    """Return what ``plan`` promises of each step of ``measured``, or of one, with the costs that were measured.

    A step of it begins so that its first action is where the first one measured is.

    Raises:
        NoTimesError: ``measured`` says too little of what the actions of ``plan`` take.
    """
    costs = measured_costs(measured)
    timeline = expected_timeline(plan, costs)
    first = min(spans[0].start for spans in timeline.workers if spans)
    starts: dict[int, float] = {}
    for worker in measured.workers:
        for span in worker.spans:
            if span.track is Track.COMPUTE and span.name == "F" and step in (None, span.step):
                starts[span.step] = min(starts.get(span.step, span.start), span.start)
    planned = planned_trace(
        timeline,
        plan.placement,
        job=measured.job,
        schedule=measured.schedule,
        unit_seconds=1.0,
        comm=costs.transfer,
        optimizer=[costs.optimizer[worker] for worker in range(plan.placement.num_workers)],
        num_replicas=1 + max(worker.dp_rank for worker in measured.workers),
    )
    return repeated(planned, {step: start - first for step, start in sorted(starts.items())}, origin=measured.origin)
