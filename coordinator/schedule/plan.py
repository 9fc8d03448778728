"""The plan of one step: what each worker of one replica does, in order."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.schedule.actions import Action, Instruction, Op, PlanError, ascending
from coordinator.schedule.check import check
from coordinator.schedule.gpipe import order_gpipe
from coordinator.schedule.lowering import STEP_END, lower
from coordinator.schedule.naive import order_naive
from coordinator.schedule.one_f_one_b import in_flight_1f1b, order_1f1b
from coordinator.schedule.placement import Placement, looping
from coordinator.schedule.rules import Claim


class Schedule(enum.StrEnum):
    """Schedules that are built; the value is the name in a job file."""

    NAIVE = "naive"
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"


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
    in_flight_bounds: tuple[int, ...]
    """Per worker, the most stage activations that may be held at once."""
    forward_only: bool = False

    def __post_init__(self) -> None:
        for name, count in (("num_microbatches", self.num_microbatches), ("num_slices", self.num_slices)):
            if count < 1:
                raise PlanError(f"{name} is {count}, need at least 1")
        check(
            Claim(
                workers=self.workers,
                placement=self.placement,
                num_microbatches=self.num_step_microbatches,
                in_flight_bounds=self.in_flight_bounds,
                forward_only=self.forward_only,
            )
        )

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
) -> Plan:
    """Return the proved plan of a training step.

    Raises:
        PlanError: The schedule is not built, a count is below 1, or the schedule has no room for chunks.
    """
    try:
        schedule = Schedule(schedule_name)
    except ValueError:
        built = ", ".join(Schedule)
        raise PlanError(f"schedule {schedule_name!r} is not built; choose one of: {built}") from None
    placement = looping(num_workers, num_chunks)
    if num_chunks != 1:
        raise PlanError(f"num_chunks is {num_chunks}, but schedule {schedule} runs one chunk per worker; use 1")
    stages = range(placement.num_stages)
    match schedule:
        case Schedule.NAIVE:
            orders = [order_naive(stage, num_microbatches=num_microbatches) for stage in stages]
            bounds = [1 for _ in stages]
        case Schedule.GPIPE:
            orders = [order_gpipe(stage, num_microbatches=num_microbatches) for stage in stages]
            bounds = [num_microbatches for _ in stages]
        case Schedule.ONE_F_ONE_B:
            size = {"num_stages": placement.num_stages, "num_microbatches": num_microbatches}
            orders = [order_1f1b(stage, **size) for stage in stages]
            bounds = [in_flight_1f1b(stage, **size) for stage in stages]
    return Plan(
        schedule=schedule,
        placement=placement,
        num_microbatches=num_microbatches,
        num_slices=num_slices,
        workers=tuple(
            (*lower(_repeat(order, num_slices, num_microbatches), placement=placement), *STEP_END) for order in orders
        ),
        in_flight_bounds=tuple(bounds),
    )


def make_forward_plan(*, num_workers: int, num_chunks: int = 1, num_microbatches: int) -> Plan:
    """Return the proved plan of an evaluation step: every forward, ascending, and nothing else.

    Raises:
        PlanError: A count is below 1.
    """
    placement = looping(num_workers, num_chunks)
    orders = [
        [
            action
            for stage in placement.stages_of(worker)
            for action in ascending(Op.FORWARD, stage, num_microbatches=num_microbatches)
        ]
        for worker in range(num_workers)
    ]
    return Plan(
        schedule="forward",
        placement=placement,
        num_microbatches=num_microbatches,
        num_slices=1,
        workers=tuple(lower(order, placement=placement) for order in orders),
        in_flight_bounds=(1,) * num_workers,
        forward_only=True,
    )


def num_commands(plan: Plan) -> int:
    """Return how many commands one step takes, over the workers of one replica."""
    return sum(len(worker) for worker in plan.workers)


def _repeat(order: Sequence[Action], num_slices: int, num_microbatches: int) -> list[Action]:
    """Return ``order`` once for each slice, its microbatches counted on."""
    return [
        Action(action.stage, action.op, action.microbatch + slice_index * num_microbatches)
        for slice_index in range(num_slices)
        for action in order
    ]
