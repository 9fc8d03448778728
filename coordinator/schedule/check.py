"""Proves that worker lists are a plan: complete, in order, free of deadlock, within memory."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from coordinator.schedule.actions import COMPUTE, Action, Barrier, Instruction, Op, PlanError
from coordinator.schedule.channels import Channel, channel_of, counterpart, peer_of, receive_of, send_of
from coordinator.schedule.execute import DeadlockError, execute
from coordinator.schedule.grid import Cell
from coordinator.schedule.in_flight import peak_in_flight
from coordinator.schedule.lowering import STEP_END
from coordinator.schedule.placement import Placement
from coordinator.schedule.rules import BrokenRuleError, Claim, Rule


def check(claim: Claim) -> None:
    """Return if the claim's lists are a plan.

    Raises:
        BrokenRuleError: They break a rule; the first in the order of ``Rule`` is named.
    """
    _check_workers(claim)
    _check_placement(claim)
    at = _check_no_action_twice(claim)
    _check_complete(claim, at)
    _check_order(claim, at)
    _check_transfers(claim, at)
    _check_channel_order(claim, at)
    _check_progress(claim)
    _check_in_flight(claim)
    _check_step_end(claim)


def _check_workers(claim: Claim) -> None:
    expected = claim.placement.num_workers
    for name, count in (("lists", len(claim.workers)), ("in-flight bounds", len(claim.in_flight_bounds))):
        if count != expected:
            raise PlanError(f"the plan breaks the rule: {Rule.WORKERS}; {count} {name} for {expected} workers")


def _check_placement(claim: Claim) -> None:
    for worker, instructions in enumerate(claim.workers):
        stages = claim.placement.stages_of(worker)
        for position, action in enumerate(instructions):
            if not isinstance(action, Action):
                continue
            if action.stage not in stages:
                text = f"{action} is not on its worker, which holds {_stages(stages)}"
                raise claim.broken(Rule.PLACEMENT, worker, position, text)
            if not 0 <= action.microbatch < claim.num_microbatches:
                text = f"{action} is not in the step, whose last microbatch is {claim.num_microbatches - 1}"
                raise claim.broken(Rule.PLACEMENT, worker, position, text)


def _check_no_action_twice(claim: Claim) -> dict[Action, Cell]:
    """Return where each action stands; it stands on its own worker and nowhere else by now."""
    at: dict[Action, Cell] = {}
    for worker, instructions in enumerate(claim.workers):
        for position, action in enumerate(instructions):
            if not isinstance(action, Action):
                continue
            if action in at:
                rule = Rule.COMPLETE if action.op.is_compute else Rule.TRANSFERS
                raise claim.broken(rule, worker, position, f"{action} stands at {at[action][1]} already")
            at[action] = (worker, position)
    return at


def _check_complete(claim: Claim, at: Mapping[Action, Cell]) -> None:
    for worker, instructions in enumerate(claim.workers):
        for stage in claim.placement.stages_of(worker):
            for op in claim.ops:
                for microbatch in range(claim.num_microbatches):
                    action = Action(stage, op, microbatch)
                    if action not in at:
                        raise claim.broken(Rule.COMPLETE, worker, claim.end_of(worker), f"{action} is missing")
        for position, extra in enumerate(instructions):
            if isinstance(extra, Action) and extra.op in COMPUTE.difference(claim.ops):
                raise claim.broken(Rule.COMPLETE, worker, position, f"{extra} has no place in a forward-only plan")


def _check_order(claim: Claim, at: Mapping[Action, Cell]) -> None:
    for worker, instructions in enumerate(claim.workers):
        newest: defaultdict[int, int] = defaultdict(lambda: -1)
        for position, action in enumerate(instructions):
            if not isinstance(action, Action):
                continue
            if action.op is Op.BACKWARD:
                if action.microbatch < newest[action.stage]:
                    text = f"{action} stands behind {Action(action.stage, Op.BACKWARD, newest[action.stage])}"
                    raise claim.broken(Rule.ASCENDING, worker, position, text)
                newest[action.stage] = action.microbatch
            for needed in _needs(action, claim.placement):
                if needed in at and at[needed] > (worker, position):
                    text = f"{action} needs {needed}, which stands behind it at {at[needed][1]}"
                    raise claim.broken(Rule.DEPENDENCY, worker, position, text)


def _needs(action: Action, placement: Placement) -> list[Action]:
    """Return the actions of the same worker whose results ``action`` uses."""
    stage, microbatch = action.stage, action.microbatch
    match action.op:
        case Op.SEND_ACTIVATION:
            return [Action(stage, Op.FORWARD, microbatch)]
        case Op.SEND_GRADIENT:
            return [Action(stage, Op.BACKWARD, microbatch)]
        case Op.FORWARD:
            before, needs = stage - 1, []
        case Op.BACKWARD:
            before, needs = stage + 1, [Action(stage, Op.FORWARD, microbatch)]
        case _:
            return []
    receive = receive_of(action, placement)
    if receive is not None:
        return [*needs, receive]
    if 0 <= before < placement.num_stages:
        return [*needs, Action(before, action.op, microbatch)]
    return needs


def _check_transfers(claim: Claim, at: Mapping[Action, Cell]) -> None:
    wanted: set[Action] = set()
    for (worker, position), action in sorted((cell, action) for action, cell in at.items()):
        if not action.op.is_compute:
            continue
        receive, send = receive_of(action, claim.placement), send_of(action, claim.placement)
        for transfer in (receive, send):
            if transfer is None:
                continue
            wanted.add(transfer)
            if transfer in at:
                continue
            other = counterpart(transfer)
            if other in at:
                text = f"{other} has no {transfer} on worker {worker}"
                raise claim.broken(Rule.TRANSFERS, *at[other], text)
            raise claim.broken(Rule.TRANSFERS, worker, position, f"{action} has no {transfer}")
    for action, (worker, position) in at.items():
        if action.op.is_transfer and action not in wanted:
            text = f"{action} has no other end on another worker"
            raise claim.broken(Rule.TRANSFERS, worker, position, text)


def _check_channel_order(claim: Claim, at: Mapping[Action, Cell]) -> None:
    sends: defaultdict[Channel, list[Action]] = defaultdict(list)
    receives: defaultdict[Channel, list[Action]] = defaultdict(list)
    for instructions in claim.workers:
        for action in instructions:
            if isinstance(action, Action) and action.op.is_transfer:
                is_send = action.op in (Op.SEND_ACTIVATION, Op.SEND_GRADIENT)
                (sends if is_send else receives)[channel_of(action, claim.placement)].append(action)
    for channel, sent in sends.items():
        for number, (send, receive) in enumerate(zip(sent, receives[channel], strict=True)):
            if counterpart(send) != receive:
                marks = {at[send]: f"{send} is number {number} of the {channel}", at[receive]: f"here it is {receive}"}
                raise BrokenRuleError(Rule.CHANNEL_ORDER, claim.workers, marks)


def _check_progress(claim: Claim) -> None:
    try:
        execute(claim.workers, placement=claim.placement, durations=dict.fromkeys(COMPUTE, 1.0), latency=0.0)
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
        wanted = f"the list must end with {' '.join(map(str, end))}" if end else "a forward-only plan has none"
        position = barriers[0] if barriers else claim.end_of(worker)
        raise claim.broken(Rule.STEP_END, worker, position, wanted)


def _stages(stages: Sequence[int]) -> str:
    return f"stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages))}"
