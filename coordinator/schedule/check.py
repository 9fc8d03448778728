"""Proves that worker lists are a plan: complete, in order, free of deadlock, within memory."""

from coordinator.schedule.actions import Action, Barrier, Instruction, PlanError
from coordinator.schedule.channels import counterpart, peer_of, receive_of
from coordinator.schedule.columns import Columns
from coordinator.schedule.coverage import check_complete, check_transfers
from coordinator.schedule.execute import DeadlockError, execute
from coordinator.schedule.in_flight import peak_in_flight
from coordinator.schedule.lowering import STEP_END
from coordinator.schedule.rules import BrokenRuleError, Claim, Rule
from coordinator.schedule.sequence import check_ascending, check_channel_order, check_dependencies


def check(claim: Claim) -> tuple[str, ...]:
    """Return what a user of the claim's lists should know, if they are a plan; most often nothing.

    Raises:
        BrokenRuleError: They break a rule; the first in the order of ``Rule`` is named.
    """
    _check_workers(claim)
    columns = Columns(claim)
    check_complete(claim, columns)
    check_transfers(claim, columns)
    check_dependencies(claim, columns)
    notices = check_ascending(claim, columns)
    check_channel_order(claim, columns)
    _check_progress(claim)
    _check_in_flight(claim)
    _check_step_end(claim)
    return notices


def _check_workers(claim: Claim) -> None:
    expected = claim.placement.num_workers
    bounds = claim.in_flight_bounds
    for name, entries in (("lists", claim.workers), ("in-flight bounds", bounds)):
        if entries is not None and len(entries) != expected:
            raise PlanError(f"the plan breaks the rule: {Rule.WORKERS}; {len(entries)} {name} for {expected} workers")


def _check_progress(claim: Claim) -> None:
    try:
        execute(claim.workers, placement=claim.placement, duration=lambda _: 1.0, latency=lambda *_: 0.0)
    except DeadlockError as deadlock:
        marks = {}
        for worker, position in deadlock.waiting.items():
            action = claim.workers[worker][position]
            receive = receive_of(action, claim.placement) if isinstance(action, Action) else None
            assert receive is not None, "only a compute action with an input from elsewhere waits"
            sender = peer_of(receive, claim.placement)
            marks[worker, position] = f"{action} waits for {counterpart(receive)} of worker {sender}"
        raise BrokenRuleError(Rule.DEADLOCK, claim.workers, marks) from None


def _check_in_flight(claim: Claim) -> None:
    if claim.in_flight_bounds is None:
        return
    for worker, (instructions, bound) in enumerate(zip(claim.workers, claim.in_flight_bounds, strict=True)):
        peak, position = peak_in_flight(instructions)
        if peak > bound:
            text = f"{peak} activations in flight from here, allowed are {bound}"
            raise claim.broken(Rule.IN_FLIGHT, worker, position, text)


def _check_step_end(claim: Claim) -> None:
    end: tuple[Instruction, ...] = () if claim.forward_only else STEP_END
    for worker, instructions in enumerate(claim.workers):
        barriers = [position for position, instruction in enumerate(instructions) if isinstance(instruction, Barrier)]
        first = claim.end_of(worker) - len(end)
        if instructions[max(first, 0) :] == end and len(barriers) == len(end):
            continue
        names = " ".join(map(str, end))
        wanted = f"{names} must stand once, at the end of the list" if end else "a forward-only plan has none"
        position = barriers[0] if barriers else claim.end_of(worker)
        raise claim.broken(Rule.STEP_END, worker, position, wanted)
