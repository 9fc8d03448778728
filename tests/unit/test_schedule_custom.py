"""Custom plans: what users and torch write, what is put in, and what is refused."""

import functools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.schedule.actions import Action, Instruction, PlanError
from coordinator.schedule.channels import counterpart
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.limits import SizeError
from coordinator.schedule.plan import Plan, Schedule, make_plan
from coordinator.schedule.rules import BrokenRuleError, Rule
from coordinator.schedule.text import to_csv

TWO_CHUNKS = (Schedule.INTERLEAVED, Schedule.LOOPED_BFS, Schedule.ZBV, Schedule.DUALPIPEV)


@functools.cache
def made(schedule: Schedule, num_workers: int = 4, num_microbatches: int = 8, num_slices: int = 1) -> Plan:
    num_chunks = 2 if schedule in TWO_CHUNKS else 1
    size = {"num_workers": num_workers, "num_microbatches": num_microbatches, "num_slices": num_slices}
    return make_plan(schedule, num_chunks=num_chunks, **size)


def read(text: str) -> Plan:
    """Return the custom plan of any size."""
    return make_custom_plan(text, num_workers=None, num_chunks=None, num_microbatches=None)


def orders_of(plan: Plan) -> list[str]:
    return [" ".join(map(str, order)) for order in plan.orders]


def is_transfer(instruction: Instruction) -> bool:
    return instruction.op.is_transfer


@pytest.mark.parametrize("num_slices", [1, 2])
@pytest.mark.parametrize("schedule", Schedule)
def test_custom_plan_of_an_exported_plan_has_its_lists(schedule: Schedule, num_slices: int) -> None:
    plan = made(schedule, num_slices=num_slices)
    chunks = plan.placement.num_chunks
    text = to_csv(plan.workers)
    custom = make_custom_plan(text, num_workers=4, num_chunks=chunks, num_microbatches=8 * num_slices)
    assert custom.workers == plan.workers
    assert custom.placement == plan.placement
    assert (custom.schedule, custom.num_microbatches, custom.num_slices) == ("custom", 8 * num_slices, 1)
    assert not custom.notices


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4])
@pytest.mark.parametrize("schedule", Schedule)
def test_custom_plan_of_exported_compute_orders_has_the_plans_lists(schedule: Schedule, num_workers: int) -> None:
    plan = made(schedule, num_workers=num_workers, num_microbatches=2 * num_workers)
    assert read(to_csv(plan.orders)).workers == plan.workers


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(Schedule), st.data())
def test_custom_plan_with_messages_left_out_at_both_ends_has_them_put_in(
    schedule: Schedule, data: st.DataObject
) -> None:
    plan = made(schedule)
    sends = [i for worker in plan.workers for i in worker if is_transfer(i) and "SEND" in i.op]
    dropped = set(data.draw(st.lists(st.sampled_from(sends), unique=True)))
    dropped |= {counterpart(send) for send in dropped if isinstance(send, Action)}
    text = to_csv([[i for i in worker if i not in dropped] for worker in plan.workers])
    assert read(text).workers == plan.workers


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(Schedule), st.data())
def test_custom_plan_with_one_end_of_a_message_is_refused_at_that_end(schedule: Schedule, data: st.DataObject) -> None:
    plan = made(schedule)
    transfer = data.draw(st.sampled_from([i for worker in plan.workers for i in worker if is_transfer(i)]))
    assert isinstance(transfer, Action)
    with pytest.raises(BrokenRuleError) as error:
        read(to_csv([[i for i in worker if i != transfer] for worker in plan.workers]))
    assert error.value.rule is Rule.TRANSFERS
    other = counterpart(transfer)
    assert f"[{other}]" in str(error.value)
    assert f"{other} has no {transfer} at its other end" in str(error.value)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(Schedule), st.data())
def test_custom_plan_with_a_compute_action_dropped_or_doubled_is_refused(
    schedule: Schedule, data: st.DataObject
) -> None:
    plan = made(schedule)
    lists = [list(order) for order in plan.orders]
    worker = data.draw(st.sampled_from(lists))
    at = data.draw(st.integers(0, len(worker) - 1))
    if data.draw(st.booleans()):
        del worker[at]
    else:
        worker.insert(data.draw(st.integers(0, len(worker))), worker[at])
    with pytest.raises(BrokenRuleError) as error:
        read(to_csv(lists))
    assert error.value.rule in (Rule.COMPLETE, Rule.TRANSFERS)  # a doubled action has doubled transfers too


def test_custom_plan_as_torch_writes_compute_orders_is_read() -> None:
    """ScheduleDualPipeV of torch 2.13, 2 ranks, 4 microbatches, ``compute_only``."""
    plan = read(
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,"
        "3B3,0I2,0W2,0I3,0W3\r\n"
        "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,"
        "2I3,1I3,2W3,1W3\r\n"
    )
    assert plan.placement.worker_by_stage == (0, 1, 1, 0)
    assert orders_of(plan) == [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0B2 0B3",
        "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3",
    ]


def test_custom_plan_as_torch_writes_transfers_keeps_their_order() -> None:
    """ScheduleDualPipeV of torch 2.13, 2 ranks, 4 microbatches, ``compute_comms``."""
    plan = read(
        "0UNSHARD,3UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,0F2,0SEND_F2,3F0,3RECV_F1,3I0,3SEND_B0,3W0,3F1,3RECV_F2,"
        "0RECV_B0,(0F3;3B1)OVERLAP_F_B,0SEND_F3,3SEND_B1,(3F2;0B0)OVERLAP_F_B,3RECV_F3,0RECV_B1,3B2,3SEND_B2,"
        "(3F3;0B1)OVERLAP_F_B,0RECV_B2,3B3,3SEND_B3,3REDUCE_GRAD,0RECV_B3,3RESHARD,0I2,0W2,0I3,0W3,0REDUCE_GRAD,0RESHARD\r\n"
        "1UNSHARD,2UNSHARD,1RECV_F0,1F0,1RECV_F1,2F0,2SEND_F0,1RECV_F2,1F1,2F1,2SEND_F1,2RECV_B0,1F2,2B0,"
        "(2F2;1B0)OVERLAP_F_B,2SEND_F2,1SEND_B0,1RECV_F3,2RECV_B1,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2SEND_F3,"
        "1SEND_B1,2RECV_B2,2B2,1B2,1SEND_B2,2RECV_B3,2I3,1I3,1SEND_B3,2W3,2REDUCE_GRAD,2RESHARD,1W3,1REDUCE_GRAD,"
        "1RESHARD\r\n"
    )
    assert " ".join(map(str, plan.workers[0])) == (
        "0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 0F2 0SEND_F2 3F0 3RECV_F1 3I0 3SEND_B0 3W0 3F1 3RECV_F2 "
        "0RECV_B0 0F3 3B1 0SEND_F3 3SEND_B1 3F2 0B0 3RECV_F3 0RECV_B1 3B2 3SEND_B2 "
        "3F3 0B1 0RECV_B2 3B3 3SEND_B3 0RECV_B3 0B2 0B3 REDUCE STEP"
    )


def test_custom_plan_of_workers_in_any_order_places_stages_where_they_compute() -> None:
    plan = read("1F0,1F1,1B0,1B1\n0F0,0F1,0B0,0B1\n")
    assert plan.placement.worker_by_stage == (1, 0)
    assert [" ".join(map(str, worker)) for worker in plan.workers] == [
        "1RECV_F0 1RECV_F1 1F0 1F1 1B0 1SEND_B0 1B1 1SEND_B1 REDUCE STEP",
        "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0RECV_B1 0B0 0B1 REDUCE STEP",
    ]


def test_custom_plan_of_stages_side_by_side_moves_nothing_between_them() -> None:
    plan = read("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0,REDUCE\n")
    assert plan.placement.worker_by_stage == (0, 0, 1, 1)
    assert [" ".join(map(str, worker)) for worker in plan.workers] == [
        "0F0 1RECV_B0 1F0 1SEND_F0 1B0 0B0 REDUCE STEP",
        "2RECV_F0 2F0 3F0 3B0 2B0 2SEND_B0 REDUCE STEP",
    ]


def test_custom_plan_of_halves_side_by_side_joins_those_whose_gradient_stays() -> None:
    plan = read("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n")
    assert orders_of(plan) == ["0F0 0F1 0B0 0B1", "1F0 1I0 1W0 1F1 1I1 1W1"]


def test_custom_plan_that_holds_every_activation_is_not_bound() -> None:
    plan = read("0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3")
    assert plan.in_flight_bounds is None
    assert not plan.notices


def test_custom_plan_that_does_not_ascend_says_so() -> None:
    (notice, *_) = read("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n").notices
    assert "0B0 stands behind 0B1" in notice


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0\n1F0,1B0,0F1,0B1\n", "line 2, cell 3: 0F1 runs stage 0, but line 1, cell 1: 0F0 does too"),
        ("0F0,0B0\n2F0,2B0\n", "line 2, cell 1: 2F0 is of stage 2, but nothing computes stage 1"),
        ("1F0,1B0", "line 1, cell 1: 1F0 is of stage 1, but nothing computes stage 0"),
        ("0F0,0B0,0F999999999,0B999999999", "line 1, cell 3: 0F999999999 is of microbatch 999999999, but nothing"),
        ("0F0,0B0,2F0,2B0\n1F0,1B0\n", "worker 0 holds 2 stages and worker 1 holds 1, need equally many"),
        ("0F0,0B0\n0SEND_F0,0RECV_B0\n", "line 2 computes nothing; each worker needs a stage"),
        ("0F0,1F0,,0B0,1B0,\n\n2F0\n", "line 2 has no action"),
        ("0F0,0G0", "line 1, cell 2: '0G0' is not an action"),
    ],
)
def test_custom_plan_that_is_none_is_refused_by_line_and_cell(text: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        read(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("0F0,0B0,REDUCE,0F1,0B1", Rule.STEP_END),
        ("0F0,0B0,STEP", Rule.STEP_END),
        ("0F0,0B0,0W0", Rule.COMPLETE),
        ("0F0,0I0", Rule.COMPLETE),
        ("0B0,0F0", Rule.DEPENDENCY),
        ("0F0,0B0,0SEND_F0", Rule.TRANSFERS),
        ("0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0", Rule.TRANSFERS),
        ("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1", Rule.CHANNEL_ORDER),
        ("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", Rule.DEADLOCK),
    ],
)
def test_custom_plan_that_breaks_a_rule_is_refused_by_its_name(text: str, rule: Rule) -> None:
    with pytest.raises(BrokenRuleError) as error:
        read(text)
    assert error.value.rule is rule
    assert "<--" in str(error.value)


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("0F0,0B0,0I0,0W0", "3 |[0W0]       <-- worker 0: 0W0 is a half of 0B0, which stands at 1"),
        ("0F0,0I0,0W0,0I0", "3 |[0I0]       <-- worker 0: 0I0 stands at 1 already"),
        ("0F0,0F1,0B0,0B1\n1F0,1B0", "2 | 0B0       []          <-- worker 1: 1F1 is missing"),
        ("0F0,0B0\n1F0,1B0,0SEND_F0", "2 |           [0SEND_F0]  <-- worker 1: 0SEND_F0 is not on its worker, which"),
        ("0F0,0B0,0SEND_F0", "2 |[0SEND_F0]  <-- worker 0: 0SEND_F0 has no stage 1 at its other end"),
        ("0F0,0SEND_B0,0B0", "1 |[0SEND_B0]  <-- worker 0: 0SEND_B0 has no stage -1 at its other end"),
    ],
)
def test_custom_plan_that_is_not_whole_is_shown_as_it_is_written(text: str, marked: str) -> None:
    with pytest.raises(BrokenRuleError) as error:
        read(text)
    assert f"    {marked}" in str(error.value)


def test_custom_plan_of_a_few_stages_and_microbatches_of_many_is_refused_in_little_memory() -> None:
    many = 2000  # a proof of as many stages times as many microbatches takes 256 MB
    text = ",".join([f"{stage}F0" for stage in range(many)] + [f"0F{microbatch}" for microbatch in range(1, many)])
    tracemalloc.start()
    with pytest.raises(BrokenRuleError, match="1F1 is missing"):
        read(text)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_custom_plan_with_receives_in_the_senders_order_may_compute_in_another() -> None:
    text = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0\n"
    text += "1RECV_F0,1RECV_F1,1F1,1F0,1B1,1SEND_B1,1B0,1SEND_B0\n"
    assert orders_of(read(text)) == ["0F0 0F1 0B1 0B0", "1F1 1F0 1B1 1B0"]


CELLS = """
    0F0 0B0 0F1 0B1 0I0 0W0 0I1 0W1 1F0 1B0 1F1 1B1 0SEND_F0 1RECV_F0 1SEND_B0 0RECV_B0 0F99999999 99999999B0
    REDUCE STEP 0UNSHARD 0REDUCE_GRAD (0F0;0B0)OVERLAP_F_B (0F0)OVERLAP_F_B ; ( -
"""


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(CELLS.split()), max_size=8).map(",".join), max_size=3).map("\n".join)
    | st.text(max_size=30)
)
def test_custom_plan_of_any_text_is_a_plan_or_refused(text: str) -> None:
    try:
        plan = read(text)
    except PlanError:
        return
    assert read(to_csv(plan.workers)).workers == plan.workers


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"num_workers": 4}, "the plan has 2 workers, one a line, but 4 are asked for"),
        ({"num_chunks": 1}, "num_chunks is 1, but the plan puts 2 stages on a worker"),
        ({"num_microbatches": 16}, "num_microbatches is 16 for the whole step, but the plan has 4"),
    ],
    ids=["workers", "chunks", "microbatches"],
)
def test_custom_plan_of_another_size_is_refused_with_both_numbers(size: dict[str, int], message: str) -> None:
    text = to_csv(made(Schedule.ZBV, num_workers=2, num_microbatches=4).workers)
    with pytest.raises(PlanError) as error:
        make_custom_plan(text, **{"num_workers": 2, "num_chunks": 2, "num_microbatches": 4, **size})
    assert message in str(error.value)
    if isinstance(error.value, SizeError):
        assert error.value.option in size
