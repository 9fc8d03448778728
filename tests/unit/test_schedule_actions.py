"""The text form of actions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.schedule.actions import Action, Barrier, Op, PlanError, ascending, parse

ACTION_OPS = [op for op in Op if op not in (Op.REDUCE, Op.STEP)]


@pytest.mark.parametrize(
    ("text", "instruction"),
    [
        ("2F0", Action(2, Op.FORWARD, 0)),
        ("10B31", Action(10, Op.BACKWARD, 31)),
        ("2SEND_F0", Action(2, Op.SEND_ACTIVATION, 0)),
        ("3RECV_F0", Action(3, Op.RECV_ACTIVATION, 0)),
        ("3SEND_B7", Action(3, Op.SEND_GRADIENT, 7)),
        ("2RECV_B7", Action(2, Op.RECV_GRADIENT, 7)),
        ("REDUCE", Barrier(Op.REDUCE)),
        ("STEP", Barrier(Op.STEP)),
    ],
)
def test_parse_of_an_action_reads_what_str_writes(text: str, instruction: Action | Barrier) -> None:
    assert parse(text) == instruction
    assert str(instruction) == text


@pytest.mark.parametrize(
    "text", ["", "F0", "2F", "2f0", "2X0", "-1F0", "2F0 ", "2REDUCE0", "2SEND_F", "reduce", "\u0662F\u0660"]
)
def test_parse_of_no_action_names_it_and_shows_how(text: str) -> None:
    with pytest.raises(PlanError, match=r"is not an action; write for instance 2F0") as error:
        parse(text)
    assert repr(text) in str(error.value)


@given(stage=st.integers(0, 999), op=st.sampled_from(ACTION_OPS), microbatch=st.integers(0, 99999))
def test_parse_of_any_action_gives_it_back(stage: int, op: Op, microbatch: int) -> None:
    action = Action(stage, op, microbatch)
    assert parse(str(action)) == action


def test_ascending_without_a_microbatch_is_refused() -> None:
    with pytest.raises(PlanError, match="num_microbatches is 0, need at least 1"):
        ascending(Op.FORWARD, 0, num_microbatches=0)
