"""The plan of one step: what each worker of one replica does, in order."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.schedule.actions import Action, Instruction, Op, PlanError, ascending
from coordinator.schedule.check import check
from coordinator.schedule.dualpipev import in_flight_dualpipev, order_dualpipev
from coordinator.schedule.gpipe import order_gpipe
from coordinator.schedule.interleaved import in_flight_interleaved, order_interleaved
from coordinator.schedule.joining import join
from coordinator.schedule.limits import Schedule, check_size
from coordinator.schedule.looped_bfs import order_looped_bfs
from coordinator.schedule.lowering import STEP_END, lower
from coordinator.schedule.naive import order_naive
from coordinator.schedule.one_f_one_b import Warmup, in_flight_1f1b, order_1f1b
from coordinator.schedule.placement import Placement, looping, v_shaped
from coordinator.schedule.rules import Claim
from coordinator.schedule.zbh1 import in_flight_zbh1, order_zbh1
from coordinator.schedule.zbh2 import in_flight_zbh2, order_zbh2
from coordinator.schedule.zbv import in_flight_zbv, order_zbv

__all__ = ["Plan", "Schedule", "make_forward_plan", "make_plan", "num_commands"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A proved plan: whoever holds one knows that its lists keep every rule of ``check``.

    Raises:
        BrokenRuleError: The lists are no plan.
    """

    schedule: str
    """Name of the schedule; ``forward`` where the plan only evaluates."""
    placement: Placement
    num_microbatches: int
    """Of one slice."""
    num_slices: int
    """Slices of gradient accumulation; microbatches count through them, from 0 to ``num_step_microbatches - 1``."""
    workers: tuple[tuple[Instruction, ...], ...]
    """Each worker's whole list, transfers and the step's end included."""
    in_flight_bounds: tuple[int, ...] | None
    """Per worker, the most chunk activations that may be held at once; ``None`` where nobody has set a bound."""
    forward_only: bool = False
    ascending: bool = True
    """Whether gradients must be summed in microbatch order; else ``notices`` tell where they are not."""
    notices: tuple[str, ...] = field(init=False, compare=False)
    """What a user of the plan should know; most often nothing."""

    def __post_init__(self) -> None:
        for name, count in (("num_microbatches", self.num_microbatches), ("num_slices", self.num_slices)):
            if count < 1:
                raise PlanError(f"{name} is {count}, need at least 1")
        notices = check(
            Claim(
                workers=self.workers,
                placement=self.placement,
                num_microbatches=self.num_step_microbatches,
                in_flight_bounds=self.in_flight_bounds,
                forward_only=self.forward_only,
                ascending=self.ascending,
            )
        )
        object.__setattr__(self, "notices", notices)

    @property
    def num_step_microbatches(self) -> int:
        """Microbatches of the whole step of one replica."""
        return self.num_slices * self.num_microbatches

    @property
    def orders(self) -> tuple[tuple[Action, ...], ...]:
        """Each worker's compute actions."""
        return tuple(tuple(i for i in worker if isinstance(i, Action) and i.op.is_compute) for worker in self.workers)


def make_plan(
    schedule_name: str,
    *,
    num_workers: int,
    num_chunks: int = 1,
    num_microbatches: int,
    num_slices: int = 1,
    group_size: int | None = None,
    warmup: Warmup | None = None,
) -> Plan:
    """Return the proved plan of a training step.

    Args:
        schedule_name: One of ``Schedule``, by value.
        num_workers: Workers of one replica.
        num_chunks: Stages on each worker.
        num_microbatches: Of one slice.
        num_slices: Slices of gradient accumulation.
        group_size: For ``interleaved``: microbatches that pass a chunk before the next chunk's turn;
            ``None`` for ``num_workers``.
        warmup: For ``1f1b``: forwards before the first backward; ``None`` for the standard ones.

    Raises:
        SizeError: The schedule cannot run these sizes.
        PlanError: The schedule is not built, or ``num_workers`` or ``num_slices`` is below 1.
    """
    try:
        schedule = Schedule(schedule_name)
    except ValueError:
        built = ", ".join(Schedule)
        raise PlanError(f"schedule {schedule_name!r} is not built; choose one of: {built}") from None
    check_size(
        schedule,
        num_workers=num_workers,
        num_chunks=num_chunks,
        num_microbatches=num_microbatches,
        group_size=group_size,
        warmup=warmup,
    )
    is_v = schedule in (Schedule.ZBV, Schedule.DUALPIPEV)
    placement = v_shaped(num_workers) if is_v else looping(num_workers, num_chunks)
    workers, bounds = [], []
    for worker in range(num_workers):
        order, bound = _order(
            schedule,
            worker,
            num_workers=num_workers,
            num_chunks=num_chunks,
            num_microbatches=num_microbatches,
            group_size=group_size,
            warmup=warmup,
        )
        whole = _repeat(join(order, placement), num_slices, num_microbatches)
        workers.append((*lower(whole, placement=placement), *STEP_END))
        bounds.append(bound)
    return Plan(
        schedule=schedule,
        placement=placement,
        num_microbatches=num_microbatches,
        num_slices=num_slices,
        workers=tuple(workers),
        in_flight_bounds=tuple(bounds),
    )


def make_forward_plan(placement: Placement, *, num_microbatches: int) -> Plan:
    """Return the proved plan of an evaluation step: every forward and nothing else, whatever the placement.

    Each worker runs its stages ascending, every microbatch through one before the next one's turn.

    Raises:
        PlanError: There is no microbatch.
    """
    orders = [
        [
            action
            for stage in placement.stages_of(worker)
            for action in ascending(Op.FORWARD, stage, num_microbatches=num_microbatches)
        ]
        for worker in range(placement.num_workers)
    ]
    return Plan(
        schedule="forward",
        placement=placement,
        num_microbatches=num_microbatches,
        num_slices=1,
        workers=tuple(lower(order, placement=placement) for order in orders),
        in_flight_bounds=(1,) * placement.num_workers,
        forward_only=True,
    )


def num_commands(plan: Plan) -> int:
    """Return how many commands one step takes, over the workers of one replica."""
    return sum(len(worker) for worker in plan.workers)


def _order(
    schedule: Schedule,
    worker: int,
    *,
    num_workers: int,
    num_chunks: int,
    num_microbatches: int,
    group_size: int | None,
    warmup: Warmup | None,
) -> tuple[tuple[Action, ...], int]:
    """Return one worker's compute order of one slice, and the most chunk activations that it may hold."""
    one = {"num_stages": num_workers, "num_microbatches": num_microbatches}  # where a worker holds one stage
    many = {"num_workers": num_workers, "num_microbatches": num_microbatches}
    order: tuple[Action, ...]
    match schedule:
        case Schedule.NAIVE:
            order, bound = order_naive(worker, num_microbatches=num_microbatches), 1
        case Schedule.GPIPE:
            order, bound = order_gpipe(worker, num_microbatches=num_microbatches), num_microbatches
        case Schedule.ONE_F_ONE_B:
            order = order_1f1b(worker, warmup=warmup, **one)
            bound = in_flight_1f1b(worker, warmup=warmup, **one)
        case Schedule.INTERLEAVED:
            groups = {"num_chunks": num_chunks, "group_size": group_size or num_workers}
            order, bound = order_interleaved(worker, **groups, **many), in_flight_interleaved(worker, **groups, **many)
        case Schedule.LOOPED_BFS:
            order = order_looped_bfs(worker, num_chunks=num_chunks, **many)
            bound = num_chunks * num_microbatches
        case Schedule.ZBH1:
            order, bound = order_zbh1(worker, **one), in_flight_zbh1(**one)
        case Schedule.ZBH2:
            order, bound = order_zbh2(worker, **one), in_flight_zbh2(**one)
        case Schedule.ZBV:
            order, bound = order_zbv(worker, **many), in_flight_zbv(worker, **many)
        case Schedule.DUALPIPEV:
            order, bound = order_dualpipev(worker, **many), in_flight_dualpipev(num_workers=num_workers)
    return order, bound


def _repeat(order: Sequence[Action], num_slices: int, num_microbatches: int) -> Sequence[Action]:
    """Return ``order`` once for each slice, its microbatches counted on."""
    if num_slices == 1:
        return order
    return [
        Action(action.stage, action.op, action.microbatch + slice_index * num_microbatches)
        for slice_index in range(num_slices)
        for action in order
    ]
