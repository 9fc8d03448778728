"""Every schedule's plans against a judge of its own kind, and single faults that none may survive."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coordinator.schedule.actions import Action, Instruction, Op
from coordinator.schedule.limits import SizeError, check_size
from coordinator.schedule.lowering import STEP_END, lower
from coordinator.schedule.one_f_one_b import EAGER
from coordinator.schedule.plan import Plan, Schedule, make_plan
from coordinator.schedule.rules import BrokenRuleError, Rule
from tests.unit.lockstep import is_sound

Lists = list[list[Instruction]]

ACTION_OPS = [op for op in Op if op not in (Op.REDUCE, Op.STEP)]
SENDS = (Op.SEND_ACTIVATION, Op.SEND_GRADIENT)
RECEIVES = (Op.RECV_ACTIVATION, Op.RECV_GRADIENT)

made = functools.cache(make_plan)


@functools.cache
def sizes(schedule: Schedule) -> list[dict[str, int]]:
    """Return every size up to 8 workers, 4 chunks and 32 microbatches that ``schedule`` runs, small ones first."""
    fitting = []
    for p, v, m in itertools.product(range(1, 9), range(1, 5), range(1, 33)):
        try:
            check_size(schedule, num_workers=p, num_chunks=v, num_microbatches=m)
        except SizeError:
            continue
        fitting.append({"num_workers": p, "num_chunks": v, "num_microbatches": m})
    return fitting


@st.composite
def plans(draw: st.DrawFn, *, min_workers: int = 1) -> Plan:
    schedule = draw(st.sampled_from(Schedule))
    size = draw(st.sampled_from([size for size in sizes(schedule) if size["num_workers"] >= min_workers]))
    num_slices = draw(st.integers(1, 2 if size["num_microbatches"] <= 8 else 1))
    return made(schedule, **size, **draw(options(schedule, **size)), num_slices=num_slices)


@st.composite
def options(
    draw: st.DrawFn, schedule: Schedule, *, num_workers: int, num_chunks: int, num_microbatches: int
) -> dict[str, Any]:
    """Return what a schedule takes besides its size, most often nothing."""
    p, m = num_workers, num_microbatches
    if schedule is Schedule.INTERLEAVED:
        fitting = [n for n in range(p, m + 1) if m % n == 0 or m % n >= p]
        return {"group_size": draw(st.sampled_from([None, *fitting]))}
    if schedule is Schedule.ONE_F_ONE_B:
        falling = st.lists(st.integers(0, m), min_size=p, max_size=p).map(lambda w: tuple(sorted(w, reverse=True)))
        return {"warmup": draw(st.sampled_from([None, EAGER]) | falling)}
    return {}


def lists_of(plan: Plan) -> Lists:
    return [list(worker) for worker in plan.workers]


def with_lists(plan: Plan, lists: Lists) -> Plan:
    return replace(plan, workers=tuple(map(tuple, lists)))


def sound(plan: Plan, lists: Lists) -> bool:
    return is_sound(
        [[str(instruction) for instruction in worker] for worker in lists],
        worker_by_stage=plan.placement.worker_by_stage,
        num_microbatches=plan.num_step_microbatches,
        bounds=plan.in_flight_bounds,
    )


def refused(plan: Plan, lists: Lists) -> BrokenRuleError:
    """Return the error; it marks a cell and names its rule."""
    with pytest.raises(BrokenRuleError) as error:
        with_lists(plan, lists)
    assert str(error.value).startswith(f"the plan breaks the rule: {error.value.rule}\n")
    assert "<-- worker " in str(error.value)
    return error.value


def judged(plan: Plan, lists: Lists) -> None:
    """Check that the checker and the judge agree."""
    if sound(plan, lists):
        with_lists(plan, lists)
    else:
        refused(plan, lists)


@pytest.mark.parametrize("schedule", Schedule)
def test_sizes_of_each_schedule_reach_the_largest(schedule: Schedule) -> None:
    assert max(size["num_workers"] for size in sizes(schedule)) == 8
    assert max(size["num_microbatches"] for size in sizes(schedule)) == 32
    several = {Schedule.INTERLEAVED: 4, Schedule.LOOPED_BFS: 4, Schedule.ZBV: 2, Schedule.DUALPIPEV: 2}
    assert max(size["num_chunks"] for size in sizes(schedule)) == several.get(schedule, 1)


@settings(max_examples=100, deadline=None)
@given(plans())
def test_check_of_made_plans_agrees_with_the_judge(plan: Plan) -> None:
    assert sound(plan, lists_of(plan))


@settings(max_examples=200, deadline=None)
@given(plans(), st.data())
def test_check_of_two_swapped_instructions_agrees_with_the_judge(plan: Plan, data: st.DataObject) -> None:
    lists = lists_of(plan)
    worker = data.draw(st.sampled_from(lists))
    first = data.draw(st.integers(0, len(worker) - 2))
    second = data.draw(st.integers(first + 1, min(first + 6, len(worker) - 1)))
    worker[first], worker[second] = worker[second], worker[first]
    judged(plan, lists)


@settings(max_examples=200, deadline=None)
@given(plans(min_workers=2), st.data())
def test_check_of_a_backward_moved_forward_with_its_transfers_agrees_with_the_judge(
    plan: Plan, data: st.DataObject
) -> None:
    lists = lists_of(plan)
    worker = data.draw(st.integers(0, len(lists) - 1))
    order = list(plan.orders[worker])
    backwards = [at for at, action in enumerate(order) if action.op in (Op.BACKWARD, Op.INPUT_GRADIENT)]
    at = data.draw(st.sampled_from(backwards))
    order.insert(data.draw(st.integers(max(0, at - 5), at)), order.pop(at))
    lists[worker] = [*lower(order, placement=plan.placement), *STEP_END]
    judged(plan, lists)  # often a deadlock: the gradient that it waits for needs a forward behind it


@settings(max_examples=100, deadline=None)
@given(plans(), st.data())
def test_check_of_two_swapped_microbatches_of_one_op_refuses(plan: Plan, data: st.DataObject) -> None:
    assume(plan.num_microbatches > 1)
    lists = lists_of(plan)
    worker = data.draw(st.sampled_from(lists))
    action = data.draw(st.sampled_from([i for i in worker if isinstance(i, Action) and i.op is not Op.FORWARD]))
    places = [at for at, i in enumerate(worker) if isinstance(i, Action) and i[:2] == action[:2]]
    assume(len(places) > 1)  # a schedule may split the backward of a single microbatch
    first, second = data.draw(st.permutations(places))[:2]
    worker[first], worker[second] = worker[second], worker[first]
    # A backward out of order, or a message that is not the one its other end expects.
    refused(plan, lists)


@settings(max_examples=100, deadline=None)
@given(plans(), st.data())
def test_check_of_a_dropped_instruction_refuses(plan: Plan, data: st.DataObject) -> None:
    lists = lists_of(plan)
    worker = data.draw(st.sampled_from(lists))
    del worker[data.draw(st.integers(0, len(worker) - 1))]
    refused(plan, lists)


@settings(max_examples=100, deadline=None)
@given(plans(), st.data())
def test_check_of_a_doubled_instruction_refuses(plan: Plan, data: st.DataObject) -> None:
    lists = lists_of(plan)
    worker = data.draw(st.sampled_from(lists))
    again = data.draw(st.sampled_from(worker))
    worker.insert(data.draw(st.integers(0, len(worker))), again)
    refused(plan, lists)


@settings(max_examples=100, deadline=None)
@given(plans(), st.data())
def test_check_of_an_instruction_turned_into_another_refuses(plan: Plan, data: st.DataObject) -> None:
    lists = lists_of(plan)
    worker = data.draw(st.sampled_from(lists))
    at = data.draw(st.integers(0, len(worker) - 1))
    other = data.draw(st.builds(Action, st.integers(0, 31), st.sampled_from(ACTION_OPS), st.integers(-1, 32)))
    assume(other != worker[at])
    worker[at] = other
    refused(plan, lists)


@settings(max_examples=100, deadline=None)
@given(plans(min_workers=2), st.sampled_from([SENDS, RECEIVES]), st.data())
def test_check_of_a_missing_transfer_names_it_at_its_other_end(
    plan: Plan, ops: tuple[Op, ...], data: st.DataObject
) -> None:
    lists = lists_of(plan)
    ends = [(w, i) for w, worker in enumerate(lists) for i in worker if isinstance(i, Action) and i.op in ops]
    worker, transfer = data.draw(st.sampled_from(ends))
    lists[worker].remove(transfer)
    error = refused(plan, lists)
    assert error.rule is Rule.TRANSFERS
    assert f"has no {transfer} on worker {worker}" in str(error)


@settings(max_examples=50, deadline=None)
@given(plans(min_workers=2), st.data())
def test_check_of_lists_on_each_others_workers_refuses(plan: Plan, data: st.DataObject) -> None:
    lists = lists_of(plan)
    first, second = data.draw(st.permutations(range(len(lists))))[:2]
    lists[first], lists[second] = lists[second], lists[first]
    assert refused(plan, lists).rule is Rule.PLACEMENT


@settings(max_examples=50, deadline=None)
@given(plans(min_workers=2), st.data())
def test_check_of_an_action_on_another_worker_refuses(plan: Plan, data: st.DataObject) -> None:
    lists = lists_of(plan)
    first, second = data.draw(st.permutations(range(len(lists))))[:2]
    action = data.draw(st.sampled_from(lists[first][:-2]))
    lists[first].remove(action)
    lists[second].insert(data.draw(st.integers(0, len(lists[second]) - 2)), action)
    assert refused(plan, lists).rule is Rule.PLACEMENT


def backward(plan: Plan, op: Op, data: st.DataObject) -> tuple[list[Instruction], Lists, Action]:
    """Return one of the plan's ``op``, its list, and all lists; plans without it are passed over."""
    lists = lists_of(plan)
    found = [(w, i) for w, worker in enumerate(lists) for i in worker if isinstance(i, Action) and i.op is op]
    assume(found)
    worker, action = data.draw(st.sampled_from(found))
    return lists[worker], lists, action


@settings(max_examples=100, deadline=None)
@given(plans(min_workers=2), st.data())
def test_check_of_a_weight_gradient_before_its_input_gradient_refuses(plan: Plan, data: st.DataObject) -> None:
    worker, lists, weight = backward(plan, Op.WEIGHT_GRADIENT, data)
    worker.remove(weight)
    worker.insert(worker.index(weight._replace(op=Op.INPUT_GRADIENT)), weight)
    assert refused(plan, lists).rule in (Rule.DEPENDENCY, Rule.ASCENDING)


@settings(max_examples=50, deadline=None)
@given(plans(), st.sampled_from([Op.BACKWARD, Op.WEIGHT_GRADIENT]), st.data())
def test_check_of_a_weight_gradient_behind_the_reduce_refuses(plan: Plan, op: Op, data: st.DataObject) -> None:
    worker, lists, gradient = backward(plan, op, data)
    worker.remove(gradient)
    worker.insert(len(worker) - 1, gradient)
    refused(plan, lists)


HALVES: dict[str, Callable[[Action, Action, Action], list[Action]]] = {
    "I alone": lambda b, i, w: [i],
    "W alone": lambda b, i, w: [w],
    "B and I": lambda b, i, w: [b, i],
    "B and W": lambda b, i, w: [b, w],
    "all three": lambda b, i, w: [i, w, b],
}


@pytest.mark.parametrize("halves", HALVES.values(), ids=HALVES.keys())
@settings(max_examples=30, deadline=None)
@given(plans(), st.data())
def test_check_of_half_a_backward_or_more_than_one_refuses(
    halves: Callable[[Action, Action, Action], list[Action]], plan: Plan, data: st.DataObject
) -> None:
    worker, lists, whole = backward(plan, Op.BACKWARD, data)
    at = worker.index(whole)
    worker[at : at + 1] = halves(whole, whole._replace(op=Op.INPUT_GRADIENT), whole._replace(op=Op.WEIGHT_GRADIENT))
    assert refused(plan, lists).rule is Rule.COMPLETE


@settings(max_examples=100, deadline=None)
@given(plans(), st.data())
def test_check_of_a_backward_split_by_hand_agrees_with_the_judge(plan: Plan, data: st.DataObject) -> None:
    worker, lists, whole = backward(plan, Op.BACKWARD, data)
    at = worker.index(whole)
    worker[at] = whole._replace(op=Op.INPUT_GRADIENT)
    worker.insert(data.draw(st.integers(at, min(at + 8, len(worker)))), whole._replace(op=Op.WEIGHT_GRADIENT))
    judged(plan, lists)


@settings(max_examples=50, deadline=None)
@given(plans(), st.data())
def test_check_of_renamed_microbatches_refuses_or_gives_a_notice_for_each_stage(
    plan: Plan, data: st.DataObject
) -> None:
    assume(plan.num_microbatches > 1)
    first, second = sorted(data.draw(st.permutations(range(plan.num_microbatches)))[:2])
    names = {first: second, second: first}
    lists = [
        [i._replace(microbatch=names.get(i.microbatch, i.microbatch)) if isinstance(i, Action) else i for i in worker]
        for worker in plan.workers
    ]
    assert refused(plan, lists).rule is Rule.ASCENDING
    free = replace(plan, workers=tuple(map(tuple, lists)), ascending=False)
    assert [notice.split(" runs its ")[0] for notice in free.notices] == [
        f"stage {stage}" for stage in range(plan.placement.num_stages)
    ]
    assert not replace(plan, ascending=False).notices
