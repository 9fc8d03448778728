"""Plans as CSV, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.schedule.actions import Action, Barrier, Op, PlanError
from coordinator.schedule.plan import Schedule, make_plan
from coordinator.schedule.text import from_csv, to_csv

INSTRUCTIONS = st.one_of(
    st.builds(
        Action,
        st.integers(0, 63),
        st.sampled_from([op for op in Op if op not in (Op.REDUCE, Op.STEP)]),
        st.integers(0, 999),
    ),
    st.sampled_from([Barrier(Op.REDUCE), Barrier(Op.STEP)]),
)
WORKERS = st.lists(st.lists(INSTRUCTIONS, min_size=1).map(tuple), min_size=1, max_size=8).map(tuple)


@given(WORKERS)
def test_csv_of_any_lists_gives_them_back(workers: tuple[tuple[Action | Barrier, ...], ...]) -> None:
    assert from_csv(to_csv(workers)) == workers


@pytest.mark.parametrize("schedule", Schedule)
def test_csv_of_a_plan_gives_its_lists_back(schedule: Schedule) -> None:
    plan = make_plan(schedule, num_workers=4, num_microbatches=8, num_slices=2)
    assert from_csv(to_csv(plan.workers)) == plan.workers


def test_csv_of_a_small_plan_is_one_line_a_worker() -> None:
    plan = make_plan("1f1b", num_workers=2, num_microbatches=1)
    assert to_csv(plan.workers) == ("0RECV_B0,0F0,0SEND_F0,0B0,REDUCE,STEP\n1RECV_F0,1F0,1B0,1SEND_B0,REDUCE,STEP\n")


def test_csv_as_a_spreadsheet_leaves_it_is_read() -> None:
    assert from_csv("0F0, 0B0 ,,\r\n1F0,1B0,,\r\n") == (
        (Action(0, Op.FORWARD, 0), Action(0, Op.BACKWARD, 0)),
        (Action(1, Op.FORWARD, 0), Action(1, Op.BACKWARD, 0)),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the plan is empty; write one line a worker"),
        ("0F0,0B0\n1F0,1G0,1B0\n", "line 2, cell 2: '1G0' is not an action"),
        ("0F0,,0B0\n", "line 1, cell 2: '' is not an action"),
        ("0F0\n\n1F0\n", "line 2, cell 1: '' is not an action"),
        ("0F0;0B0\n", "line 1, cell 1: '0F0;0B0' is not an action"),
    ],
)
def test_csv_with_a_bad_cell_is_refused_by_line_and_cell(text: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        from_csv(text)
    assert message in str(error.value)
