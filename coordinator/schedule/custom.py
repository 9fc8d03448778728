"""Plans that users write, as CSV."""

from collections.abc import Sequence
from itertools import count, product
from typing import NamedTuple

from coordinator.schedule.actions import Action, Barrier, Instruction, Op, PlanError
from coordinator.schedule.channels import counterpart
from coordinator.schedule.columns import Columns
from coordinator.schedule.coverage import check_complete
from coordinator.schedule.joining import join
from coordinator.schedule.limits import SizeError
from coordinator.schedule.lowering import STEP_END, lower
from coordinator.schedule.placement import Placement
from coordinator.schedule.plan import Plan
from coordinator.schedule.rules import BrokenRuleError, Claim, Rule
from coordinator.schedule.text import Entry, read_csv


def make_custom_plan(
    text: str, *, num_workers: int | None, num_chunks: int | None, num_microbatches: int | None
) -> Plan:
    """Return the proved plan that ``text`` holds, one line a worker.

    A worker holds the stages that it computes. Messages that stand at neither of their ends, ``REDUCE`` and
    ``STEP`` are put in where they are missing. The plan covers a whole step, so ``num_microbatches`` counts all
    slices; a count that is ``None`` is taken from the text. The activations held have no bound, and the order
    of microbatches is free, though a notice where gradients are not summed in it.

    Raises:
        PlanError: The text is no plan; see also ``read_csv``, and ``BrokenRuleError`` for one that breaks a rule.
        SizeError: The plan is one of other counts.
    """
    lines = read_csv(text)
    computes = _computes(lines)
    placement = _placement(lines, computes)
    step_microbatches = _num_microbatches(computes)
    if num_workers not in (None, placement.num_workers):
        raise PlanError(
            f"the plan has {placement.num_workers} workers, one a line, but {num_workers} are asked for; "
            "ask for as many, or give another plan"
        )
    if num_chunks not in (None, placement.num_chunks):
        found = placement.num_chunks
        text = f"is {num_chunks}, but the plan puts {found} stages on a worker; needs {found}"
        raise SizeError("num_chunks", text)
    if num_microbatches not in (None, step_microbatches):
        text = (
            f"is {num_microbatches} for the whole step, but the plan has {step_microbatches}; "
            "use as many, all accumulation slices together"
        )
        raise SizeError("num_microbatches", text)
    workers = tuple(tuple(entry.instruction for entry in entries) for entries in lines)
    _check_complete(workers, placement, step_microbatches)
    _check_no_half_message(workers, placement)
    return Plan(
        schedule="custom",
        placement=placement,
        num_microbatches=step_microbatches,
        num_slices=1,
        workers=tuple(lower(_completed(instructions, placement), placement=placement) for instructions in workers),
        in_flight_bounds=None,
        ascending=False,
    )


class _Compute(NamedTuple):
    """A compute action, and where it stands; line and cell count from 1."""

    line: int
    cell: int
    action: Action

    def __str__(self) -> str:
        return f"line {self.line}, cell {self.cell}: {self.action}"


def _computes(lines: Sequence[Sequence[Entry]]) -> list[_Compute]:
    return [
        _Compute(number, cell, instruction)
        for number, entries in enumerate(lines, start=1)
        for instruction, cell in entries
        if isinstance(instruction, Action) and instruction.op.is_compute
    ]


def _placement(lines: Sequence[Sequence[Entry]], computes: Sequence[_Compute]) -> Placement:
    """Return where the stages are: each on one line, equally many on each line, no number left out."""
    first: dict[int, _Compute] = {}
    for compute in computes:
        other = first.setdefault(compute.action.stage, compute)
        if compute.line != other.line:
            raise PlanError(
                f"{compute} runs stage {compute.action.stage}, but {other} does too; a stage has one worker"
            )
    computing = {compute.line for compute in first.values()}
    for number, _ in enumerate(lines, start=1):
        if number not in computing:
            raise PlanError(f"line {number} computes nothing; each worker needs a stage")
    _check_none_left_out("stage", first)
    return Placement(tuple(first[stage].line - 1 for stage in range(len(first))))


def _num_microbatches(computes: Sequence[_Compute]) -> int:
    first: dict[int, _Compute] = {}
    for compute in computes:
        first.setdefault(compute.action.microbatch, compute)
    _check_none_left_out("microbatch", first)
    return len(first)


def _check_none_left_out(what: str, first: dict[int, _Compute]) -> None:
    missing = next(number for number in count() if number not in first)
    highest = max(first)
    if missing < highest:
        raise PlanError(f"{first[highest]} is of {what} {highest}, but nothing computes {what} {missing}")


def _check_complete(workers: tuple[tuple[Instruction, ...], ...], placement: Placement, num_microbatches: int) -> None:
    """Return if each stage runs each microbatch once, as it is written, with nothing put in or joined yet.

    A missing forward is found first: the proof takes room for every microbatch on every stage, and a short text
    can name many of both.
    """
    actions = [i for instructions in workers for i in instructions if isinstance(i, Action)]
    forwards = {(action.stage, action.microbatch) for action in actions if action.op is Op.FORWARD}
    if len(forwards) < placement.num_stages * num_microbatches:
        places = product(range(placement.num_stages), range(num_microbatches))
        stage, microbatch = next(place for place in places if place not in forwards)
        worker = placement.worker_of(stage)
        marks = {(worker, len(workers[worker])): f"{Action(stage, Op.FORWARD, microbatch)} is missing"}
        raise BrokenRuleError(Rule.COMPLETE, workers, marks)
    claim = Claim(
        workers=workers,
        placement=placement,
        num_microbatches=num_microbatches,
        in_flight_bounds=None,
        forward_only=False,
        ascending=False,
    )
    check_complete(claim, Columns(claim))


def _check_no_half_message(workers: Sequence[Sequence[Instruction]], placement: Placement) -> None:
    """Return if each transfer has its other end: one end alone is a mistake, and nobody knows which."""
    transfers = {i for instructions in workers for i in instructions if isinstance(i, Action) and i.op.is_transfer}
    for worker, instructions in enumerate(workers):
        for position, instruction in enumerate(instructions):
            if isinstance(instruction, Action) and instruction in transfers:
                other = counterpart(instruction)
                if other not in transfers:
                    lacked = other if 0 <= other.stage < placement.num_stages else f"stage {other.stage}"
                    marks = {(worker, position): f"{instruction} has no {lacked} at its other end"}
                    raise BrokenRuleError(Rule.TRANSFERS, workers, marks)


def _completed(instructions: Sequence[Instruction], placement: Placement) -> list[Instruction]:
    """Return a worker's list with the step's end, and with backwards whole where halves gain nothing."""
    end = next((at for at, i in enumerate(instructions) if isinstance(i, Barrier)), len(instructions))
    actions = [i for i in instructions[:end] if isinstance(i, Action)]
    return [*join(actions, placement), *instructions[end:], *(b for b in STEP_END if b not in instructions)]
