"""What the checker refuses, against an oracle of its own and against single faults."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coordinator.schedule.actions import Action, Instruction, Op, PlanError, parse
from coordinator.schedule.lowering import STEP_END, lower
from coordinator.schedule.plan import Plan, Schedule, make_forward_plan, make_plan
from coordinator.schedule.rules import BrokenRuleError, Rule

GOLDEN = Path(__file__).parent.parent / "golden"
ACTION_OPS = [op for op in Op if op not in (Op.REDUCE, Op.STEP)]
Lists = list[list[Instruction]]

made = functools.cache(make_plan)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    num_workers, num_microbatches = draw(st.integers(1, 8)), draw(st.integers(1, 32))
    return made(draw(st.sampled_from(Schedule)), num_workers=num_workers, num_microbatches=num_microbatches)


def lists_of(plan: Plan) -> Lists:
    return [list(worker) for worker in plan.workers]


def with_lists(plan: Plan, lists: Sequence[Sequence[Instruction]]) -> Plan:
    return replace(plan, workers=tuple(map(tuple, lists)))


def refused(plan: Plan, lists: Lists) -> BrokenRuleError:
    with pytest.raises(BrokenRuleError) as error:
        with_lists(plan, lists)
    assert str(error.value).count("<--") >= 1
    return error.value


def is_sound(plan: Plan, lists: Lists) -> bool:
    """Judge one-stage-a-worker lists by their text alone, lock step by lock step."""
    texts = [[str(instruction) for instruction in worker] for worker in lists]
    last, num_microbatches = len(texts) - 1, plan.num_microbatches
    for stage, worker in enumerate(texts):
        kinds = ["F", "B"] + ["RECV_F", "SEND_B"] * (stage > 0) + ["SEND_F", "RECV_B"] * (stage < last)
        wanted = [f"{stage}{kind}{m}" for kind in kinds for m in range(num_microbatches)] + ["REDUCE", "STEP"]
        backwards = [f"{stage}B{m}" for m in range(num_microbatches)]
        if sorted(worker) != sorted(wanted) or worker[-2:] != ["REDUCE", "STEP"]:
            return False
        if [text for text in worker if text in backwards] != backwards:
            return False
        held = 0
        for text in worker:
            held += text.startswith(f"{stage}F")
            if held > plan.in_flight_bounds[stage]:
                return False
            held -= text.startswith(f"{stage}B")
    for a, b, kind in [(s, s + 1, "F") for s in range(last)] + [(s + 1, s, "B") for s in range(last)]:
        sent = [text.split("_")[1] for text in texts[a] if text.startswith(f"{a}SEND_{kind}")]
        received = [text.split("_")[1] for text in texts[b] if text.startswith(f"{b}RECV_{kind}")]
        if sent != received:
            return False
    done: set[str] = set()
    todo = [list(worker) for worker in texts]
    while any(todo):
        moved = False
        for stage, worker in enumerate(todo):
            while worker and set(needed(worker[0], stage, last)) <= done:
                done.add(worker.pop(0))
                moved = True
        if not moved:
            return False
    return True


def needed(text: str, stage: int, last: int) -> list[str]:
    if text in ("REDUCE", "STEP") or "RECV" in text:
        return []
    op, m = ("F", text.split("F")[1]) if "F" in text else ("B", text.split("B")[1])
    if "SEND" in text:
        return [f"{stage}{op}{m}"]
    if op == "F":
        return [f"{stage}RECV_F{m}", f"{stage - 1}SEND_F{m}"] if stage > 0 else []
    return [f"{stage}F{m}"] + ([f"{stage}RECV_B{m}", f"{stage + 1}SEND_B{m}"] if stage < last else [])


@settings(max_examples=100, deadline=None)
@given(plans())
def test_check_of_made_plans_agrees_with_the_oracle(plan: Plan) -> None:
    assert is_sound(plan, lists_of(plan))


@settings(max_examples=300, deadline=None)
@given(plans(), st.data())
def test_check_of_two_swapped_instructions_agrees_with_the_oracle(plan: Plan, data: st.DataObject) -> None:
    lists = lists_of(plan)
    worker = data.draw(st.sampled_from(lists))
    first = data.draw(st.integers(0, len(worker) - 2))
    second = data.draw(st.integers(first + 1, min(first + 6, len(worker) - 1)))
    worker[first], worker[second] = worker[second], worker[first]
    if is_sound(plan, lists):
        with_lists(plan, lists)
    else:
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
    other = data.draw(st.builds(Action, st.integers(0, 8), st.sampled_from(ACTION_OPS), st.integers(-1, 32)))
    assume(other != worker[at])
    worker[at] = other
    refused(plan, lists)


@settings(max_examples=100, deadline=None)
@given(plans().filter(lambda plan: plan.placement.num_workers > 1), st.booleans(), st.data())
def test_check_of_a_missing_transfer_names_it_at_its_other_end(plan: Plan, sends: bool, data: st.DataObject) -> None:
    lists = lists_of(plan)
    ops = (Op.SEND_ACTIVATION, Op.SEND_GRADIENT) if sends else (Op.RECV_ACTIVATION, Op.RECV_GRADIENT)
    ends = [(w, i) for w, worker in enumerate(lists) for i in worker if isinstance(i, Action) and i.op in ops]
    worker, transfer = data.draw(st.sampled_from(ends))
    lists[worker].remove(transfer)
    error = refused(plan, lists)
    assert error.rule is Rule.TRANSFERS
    assert f"has no {transfer} on worker {worker}" in str(error)


def small(order_of: Callable[[str], str]) -> Lists:
    """Return lists of 2 workers and 2 microbatches, each worker's compute order rewritten by ``order_of``."""
    plan = made("gpipe", num_workers=2, num_microbatches=2)
    orders = [order_of(" ".join(map(str, order))) for order in plan.orders]
    return [
        [*lower([a for a in map(parse, order.split()) if isinstance(a, Action)], placement=plan.placement), *STEP_END]
        for order in orders
    ]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("1B0 1B1", "1B1 1B0"), Rule.ASCENDING),
        (("1F0 1F1", "1F1 1F0"), Rule.CHANNEL_ORDER),
        (("0F0 0F1 0B0", "0F0 0B0 0F1"), Rule.DEADLOCK),
        (("1F1 1B0 1B1", "1B0 1B1 1F1"), Rule.DEPENDENCY),
        (("1B1", ""), Rule.COMPLETE),
        (("1B1", "1B1 1B1"), Rule.COMPLETE),
        (("1B1", "1B2"), Rule.PLACEMENT),
        (("1F0", "0F0"), Rule.PLACEMENT),
    ],
)
def test_check_of_one_fault_names_its_rule(change: tuple[str, str], rule: Rule) -> None:
    plan = made("gpipe", num_workers=2, num_microbatches=2)
    assert refused(plan, small(lambda order: order.replace(*change))).rule is rule


def test_check_of_a_deadlock_shows_the_grid_with_the_waiting_cells_marked() -> None:
    plan = made("gpipe", num_workers=2, num_microbatches=2)
    error = refused(plan, small(lambda order: order.replace("0F0 0F1 0B0", "0F0 0B0 0F1")))
    assert f"{error}\n" == (GOLDEN / "deadlock.txt").read_text()


def test_check_of_a_send_before_its_result_refuses() -> None:
    plan = made("gpipe", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    send = lists[0].index(Action(0, Op.SEND_ACTIVATION, 0))
    lists[0][send - 1], lists[0][send] = lists[0][send], lists[0][send - 1]
    assert refused(plan, lists).rule is Rule.DEPENDENCY


def test_check_of_a_receive_behind_its_use_refuses() -> None:
    plan = made("1f1b", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    lists[1].remove(Action(1, Op.RECV_ACTIVATION, 1))
    lists[1].insert(-2, Action(1, Op.RECV_ACTIVATION, 1))
    assert refused(plan, lists).rule is Rule.DEPENDENCY


def test_check_of_a_transfer_past_the_last_stage_refuses() -> None:
    plan = made("1f1b", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    lists[1].insert(3, Action(1, Op.SEND_ACTIVATION, 0))
    error = refused(plan, lists)
    assert error.rule is Rule.TRANSFERS
    assert "1SEND_F0 has no other end on another worker" in str(error)


def test_check_of_more_in_flight_than_allowed_refuses() -> None:
    gpipe = made("gpipe", num_workers=2, num_microbatches=4)
    with pytest.raises(BrokenRuleError, match=r"3 activations in flight|4 activations in flight") as error:
        replace(gpipe, in_flight_bounds=(4, 3))
    assert error.value.rule is Rule.IN_FLIGHT


@pytest.mark.parametrize(
    "end",
    ["", "REDUCE", "STEP", "STEP REDUCE", "REDUCE STEP STEP", "REDUCE REDUCE STEP"],
    ids=lambda end: end or "none",
)
def test_check_of_a_wrong_end_refuses(end: str) -> None:
    plan = made("1f1b", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    lists[0][-2:] = [parse(text) for text in end.split()]
    assert refused(plan, lists).rule is Rule.STEP_END


def test_check_of_a_step_before_the_last_backward_refuses() -> None:
    plan = made("1f1b", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    lists[0].append(lists[0].pop(-3))
    assert refused(plan, lists).rule is Rule.STEP_END


def test_check_of_a_backward_or_a_step_in_a_forward_plan_refuses() -> None:
    plan = make_forward_plan(num_workers=2, num_microbatches=2)
    backward = lists_of(plan)
    backward[1].append(Action(1, Op.BACKWARD, 0))
    assert refused(plan, backward).rule is Rule.COMPLETE
    assert refused(plan, [[*worker, *STEP_END] for worker in plan.workers]).rule is Rule.STEP_END


def test_check_of_lists_for_other_workers_refuses() -> None:
    plan = made("1f1b", num_workers=2, num_microbatches=2)
    with pytest.raises(PlanError, match="1 lists for 2 workers"):
        replace(plan, workers=plan.workers[:1])


def test_check_of_a_long_plan_shows_only_the_lines_around_the_fault() -> None:
    plan = made("1f1b", num_workers=4, num_microbatches=32)
    lists = lists_of(plan)
    lists[2].remove(Action(2, Op.BACKWARD, 15))
    error = refused(plan, lists)
    assert "2B15 is missing" in str(error)
    assert len(str(error).splitlines()) < 20
