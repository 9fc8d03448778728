"""Plans as CSV, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.schedule.actions import Action, Barrier, Instruction, Op, PlanError
from coordinator.schedule.plan import Schedule, make_plan
from coordinator.schedule.text import read_csv, to_csv

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


def from_csv(text: str) -> tuple[tuple[Instruction, ...], ...]:
    """Return the lists without the places they were read from."""
    return tuple(tuple(entry.instruction for entry in entries) for entries in read_csv(text))


@given(WORKERS)
def test_csv_of_any_lists_gives_them_back(workers: tuple[tuple[Action | Barrier, ...], ...]) -> None:
    assert from_csv(to_csv(workers)) == workers


@pytest.mark.parametrize("schedule", Schedule)
def test_csv_of_a_plan_gives_its_lists_back(schedule: Schedule) -> None:
    two_chunks = schedule in (Schedule.INTERLEAVED, Schedule.LOOPED_BFS, Schedule.ZBV, Schedule.DUALPIPEV)
    plan = make_plan(schedule, num_workers=4, num_chunks=1 + two_chunks, num_microbatches=8, num_slices=2)
    assert from_csv(to_csv(plan.workers)) == plan.workers


def test_csv_of_a_small_plan_is_one_line_a_worker() -> None:
    plan = make_plan("1f1b", num_workers=2, num_microbatches=1)
    assert to_csv(plan.workers) == ("0RECV_B0,0F0,0SEND_F0,0B0,REDUCE,STEP\n1RECV_F0,1F0,1B0,1SEND_B0,REDUCE,STEP\n")


@pytest.mark.parametrize(
    "text",
    [
        "0F0, 0B0 ,,\r\n1F0,1B0,,\r\n",
        "\ufeff0F0,0B0\n1F0,1B0\n",
        ",0F0,,,0B0\n,,1F0, ,1B0",
        "0F0,0B0\n1F0,1B0\n,,,\n\n \n",
        '"0F0","0B0"\n"1F0"," 1B0"\n',
        "0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\r\n1UNSHARD,1F0,1B0,1REDUCE_GRAD,1RESHARD\r\n",
    ],
    ids=["blanks", "bom", "holes", "end", "quotes", "sharding"],
)
def test_csv_with_cells_that_say_nothing_is_read_without_them(text: str) -> None:
    assert from_csv(text) == (
        (Action(0, Op.FORWARD, 0), Action(0, Op.BACKWARD, 0)),
        (Action(1, Op.FORWARD, 0), Action(1, Op.BACKWARD, 0)),
    )


def test_csv_with_overlapped_actions_is_read_in_their_order() -> None:
    assert from_csv("3F0,(3F2;0B10)OVERLAP_F_B,( 0I1 ; 3F3 )OVERLAP_F_B\n") == (
        (
            Action(3, Op.FORWARD, 0),
            Action(3, Op.FORWARD, 2),
            Action(0, Op.BACKWARD, 10),
            Action(0, Op.INPUT_GRADIENT, 1),
            Action(3, Op.FORWARD, 3),
        ),
    )


def test_read_csv_gives_each_action_the_number_of_its_cell() -> None:
    entries = read_csv(",0F0,0UNSHARD,(0F1;0B0)OVERLAP_F_B,REDUCE\n1F0\n")
    assert [[(str(instruction), cell) for instruction, cell in line] for line in entries] == [
        [("0F0", 2), ("0F1", 4), ("0B0", 4), ("REDUCE", 5)],
        [("1F0", 1)],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the plan is empty; write one line a worker"),
        (",,\n \n", "the plan is empty; write one line a worker"),
        ("0F0,0B0\n1F0,1G0,1B0\n", "line 2, cell 2: '1G0' is not an action"),
        ("0F0\n1F0,,1f0\n", "line 2, cell 3: '1f0' is not an action"),
        ("0F0\n\n1F0\n", "line 2 has no action"),
        ("0F0\n0UNSHARD\n1F0\n", "line 2 has no action"),
        ("0F0;0B0\n", "line 1, cell 1: '0F0;0B0' is not an action"),
        ("0F0,-1F0\n", "line 1, cell 2: '-1F0' is not an action"),
        ("0F0," + "0B0;" * 50, "line 1, cell 2: '0B0;0B0;0B0;0B0;0B0;'... is not an action but 200 characters"),
        ("(0F0;1B0;1F0)OVERLAP_F_B", "line 1, cell 1: '(0F0;1B0;1F0)OVERLAP_F_B' does not overlap two actions"),
        ("(0F0;0SEND_F0)OVERLAP_F_B", "line 1, cell 1: '(0F0;0SEND_F0)OVERLAP_F_B' does not overlap two actions"),
        ("0F0,(0F1;)OVERLAP_F_B", "line 1, cell 2: '' is not an action"),
    ],
)
def test_csv_with_a_bad_cell_is_refused_by_line_and_cell(text: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        from_csv(text)
    assert message in str(error.value)
