"""What the checker refuses, and how it says so; mutated plans of every schedule are in test_schedule_mutations."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.schedule.actions import Action, Instruction, Op, PlanError, parse
from coordinator.schedule.lowering import STEP_END, lower
from coordinator.schedule.placement import looping
from coordinator.schedule.plan import Plan, make_forward_plan, make_plan
from coordinator.schedule.rules import BrokenRuleError, Rule

GOLDEN = Path(__file__).parent.parent / "golden"
Lists = list[list[Instruction]]


def made(schedule: str, *, num_workers: int, num_microbatches: int) -> Plan:
    return make_plan(schedule, num_workers=num_workers, num_microbatches=num_microbatches)


def lists_of(plan: Plan) -> Lists:
    return [list(worker) for worker in plan.workers]


def refused(plan: Plan, lists: Lists) -> BrokenRuleError:
    with pytest.raises(BrokenRuleError) as error:
        replace(plan, workers=tuple(map(tuple, lists)))
    assert str(error.value).count("<--") >= 1
    return error.value


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


@pytest.mark.parametrize(
    ("change", "rule", "text"),
    [  # worker 1 of zbh1 runs 1F0 1I0 1F1 1I1 1W0 1W1
        (("1W1", ""), Rule.COMPLETE, "1I1 has no 1W1"),
        (("1I1", ""), Rule.COMPLETE, "1W1 has no 1I1"),
        (("1I1 1W0 1W1", "1W0"), Rule.COMPLETE, "1B1 is missing, or 1I1 and 1W1"),
        (("1W1", "1B1"), Rule.COMPLETE, "1I1 is a half of 1B1, which stands at "),
        (("1I1", "1B1"), Rule.COMPLETE, "1W1 is a half of 1B1, which stands at "),
        (("1I1 1W0 1W1", "1W0 1W1 1I1"), Rule.DEPENDENCY, "1W1 needs 1I1, which stands behind it at"),
        (("1W0 1W1", "1W1 1W0"), Rule.ASCENDING, "1W0 stands behind 1W1"),
    ],
)
def test_check_of_one_fault_in_split_backwards_names_it(change: tuple[str, str], rule: Rule, text: str) -> None:
    plan = made("zbh1", num_workers=2, num_microbatches=2)
    orders = [" ".join(map(str, order)).replace(*change) for order in plan.orders]
    lists = [[*lower([parse(name) for name in order.split()], placement=plan.placement), *STEP_END] for order in orders]
    error = refused(plan, lists)
    assert error.rule is rule
    assert text in str(error)


def test_check_of_a_weight_gradient_behind_the_reduce_refuses() -> None:
    plan = made("zbh1", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    assert list(map(str, lists[1][-3:])) == ["1W1", "REDUCE", "STEP"]
    lists[1][-3], lists[1][-2] = lists[1][-2], lists[1][-3]
    assert refused(plan, lists).rule is Rule.STEP_END


def test_check_of_a_split_backward_holds_the_activation_until_its_weight_gradient() -> None:
    order = "0F0 0I0 0F1 0W0 0I1 0W1"
    lists = [[*map(parse, order.split()), *STEP_END]]
    plan = made("naive", num_workers=1, num_microbatches=2)
    error = refused(plan, lists)
    assert error.rule is Rule.IN_FLIGHT
    assert "2 activations in flight from here, allowed are 1" in str(error)
    replace(plan, workers=tuple(map(tuple, lists)), in_flight_bounds=(2,))
    replace(plan, workers=tuple(map(tuple, lists)), in_flight_bounds=None)


@pytest.mark.parametrize(
    ("order", "notice"),
    [
        ("0F0 0F1 0F2 0B0 0B2 0B1", "stage 0 runs its backwards out of order (0B1 stands behind 0B2)"),
        ("0F0 0F1 0F2 0I0 0I2 0B1 0W0 0W2", "stage 0 runs its backwards out of order (0B1 stands behind 0I2)"),
        (
            "0F0 0F1 0F2 0I0 0I1 0I2 0W0 0W2 0W1",
            "stage 0 runs its weight gradients out of order (0W1 stands behind 0W2)",
        ),
        ("0F0 0F2 0F1 0B0 0I1 0I2 0W1 0W2", None),
    ],
)
def test_check_of_a_plan_that_need_not_ascend_gives_a_notice(order: str, notice: str | None) -> None:
    plan = made("gpipe", num_workers=1, num_microbatches=3)
    workers = ((*map(parse, order.split()), *STEP_END),)
    ending = ": gradients equal those of other schedules to rounding, not to the bit"
    notices = () if notice is None else (notice + ending,)
    assert replace(plan, workers=workers, ascending=False).notices == notices
    if notice:
        assert refused(plan, [list(workers[0])]).rule is Rule.ASCENDING


def test_check_of_a_deadlock_shows_the_grid_with_the_waiting_cells_marked() -> None:
    plan = made("gpipe", num_workers=2, num_microbatches=2)
    error = refused(plan, small(lambda order: order.replace("0F0 0F1 0B0", "0F0 0B0 0F1")))
    assert f"{error}\n" == (GOLDEN / "deadlock.txt").read_text()


@pytest.mark.parametrize("microbatch", [-1, 2])
def test_check_of_a_microbatch_that_is_not_in_the_step_refuses(microbatch: int) -> None:
    plan = made("gpipe", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    lists[1][lists[1].index(Action(1, Op.BACKWARD, 1))] = Action(1, Op.BACKWARD, microbatch)
    error = refused(plan, lists)
    assert error.rule is Rule.PLACEMENT
    assert f"1B{microbatch} is not in the step, whose last microbatch is 1" in str(error)


def test_check_of_a_send_before_its_result_refuses() -> None:
    plan = made("gpipe", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    send = lists[0].index(Action(0, Op.SEND_ACTIVATION, 0))
    lists[0][send - 1], lists[0][send] = lists[0][send], lists[0][send - 1]
    assert refused(plan, lists).rule is Rule.DEPENDENCY


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [  # stages 1 and 2 are both on worker 1, at the foot of the V
        ("1F0", "2F0", "2F0 needs 1F0, which stands behind it at"),
        ("2I0", "1I0", "1I0 needs 2I0, which stands behind it at"),
    ],
)
def test_check_of_a_result_that_stays_on_its_worker_refuses_its_use_before_it(
    first: str, second: str, text: str
) -> None:
    plan = make_plan("zbv", num_workers=2, num_chunks=2, num_microbatches=1)
    order = "1F0 2F0 2I0 1I0 2W0 1W0".replace(first, "x").replace(second, first).replace("x", second)
    lists = lists_of(plan)
    lists[1] = [*lower([parse(name) for name in order.split()], placement=plan.placement), *STEP_END]
    error = refused(plan, lists)
    assert error.rule is Rule.DEPENDENCY
    assert text in str(error)


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
    error = refused(plan, lists)
    assert error.rule is Rule.STEP_END
    assert "<-- worker 0: REDUCE STEP must stand once, at the end of the list" in str(error)


def test_check_of_a_step_before_the_last_backward_refuses() -> None:
    plan = made("1f1b", num_workers=2, num_microbatches=2)
    lists = lists_of(plan)
    lists[0].append(lists[0].pop(-3))
    assert refused(plan, lists).rule is Rule.STEP_END


def test_check_of_a_backward_or_a_step_in_a_forward_plan_refuses() -> None:
    plan = make_forward_plan(looping(2), num_microbatches=2)
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


def test_check_of_many_workers_shows_those_next_to_the_fault() -> None:
    plan = made("1f1b", num_workers=64, num_microbatches=2)
    lists = lists_of(plan)
    lists[40].remove(Action(40, Op.RECV_ACTIVATION, 1))
    error = refused(plan, lists)
    assert "39SEND_F1 has no 40RECV_F1 on worker 40" in str(error)
    heads = str(error).splitlines()[1]
    assert "worker 39" in heads
    assert len(heads) < 200


def test_check_of_a_channel_across_many_workers_shows_both_ends() -> None:
    plan = make_plan("interleaved", num_workers=32, num_chunks=2, num_microbatches=32)
    lists = lists_of(plan)  # worker 31 sends stage 31's output to stage 32, on worker 0
    sends = [at for at, i in enumerate(lists[31]) if isinstance(i, Action) and i.op is Op.SEND_ACTIVATION]
    first, second = sends[3], sends[4]
    lists[31].insert(second, lists[31].pop(first))
    error = refused(plan, lists)
    assert error.rule is Rule.CHANNEL_ORDER
    assert "31SEND_F4 is number 3 of the activations from worker 31 to worker 0" in str(error)
    assert "here it is 32RECV_F3" in str(error)
