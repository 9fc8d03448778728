"""Transfers: where lowering puts them, and which channel they use."""

import pytest

from coordinator.schedule.actions import Action, Op, PlanError, parse
from coordinator.schedule.channels import Border, Channel, Kind, borders, channel_of, counterpart, peer_of
from coordinator.schedule.joining import join
from coordinator.schedule.lowering import lower
from coordinator.schedule.placement import Placement, looping, v_shaped


def actions(text: str) -> list[Action]:
    return [action for action in map(parse, text.split()) if isinstance(action, Action)]


def lowered(order: str, placement: Placement) -> str:
    return " ".join(map(str, lower([parse(text) for text in order.split()], placement=placement)))


def joined(order: str, placement: Placement) -> str:
    return " ".join(map(str, join(actions(order), placement)))


def test_lower_of_a_middle_stage_receives_one_action_ahead_and_sends_at_once() -> None:
    assert lowered("1F0 1F1 1B0 1B1", looping(3)) == (
        "1RECV_F0 1RECV_F1 1F0 1SEND_F0 1RECV_B0 1F1 1SEND_F1 1RECV_B1 1B0 1SEND_B0 1B1 1SEND_B1"
    )


def test_lower_of_the_first_stage_receives_no_activation_and_sends_no_gradient() -> None:
    assert lowered("0F0 0B0", looping(2)) == "0RECV_B0 0F0 0SEND_F0 0B0"


def test_lower_of_the_last_stage_sends_no_activation_and_receives_no_gradient() -> None:
    assert lowered("1F0 1B0", looping(2)) == "1RECV_F0 1F0 1B0 1SEND_B0"


@pytest.mark.parametrize("num_chunks", [1, 2])
def test_lower_on_a_lone_worker_adds_nothing(num_chunks: int) -> None:
    order = "0F0 1F0 1B0 0B0" if num_chunks == 2 else "0F0 0B0"
    assert lowered(order, looping(1, num_chunks)) == order


def test_lower_with_two_chunks_crosses_from_the_last_worker_to_the_first() -> None:
    placement = looping(2, 2)
    assert lowered("1F0 3F0 3B0 1B0", placement) == (
        "1RECV_F0 3RECV_F0 1F0 1SEND_F0 3F0 1RECV_B0 3B0 3SEND_B0 1B0 1SEND_B0"
    )


def test_lower_of_halves_receives_for_the_input_gradient_and_sends_it_before_the_weights() -> None:
    assert lowered("1F0 1F1 1I0 1W0 1I1 1W1", looping(3)) == (
        "1RECV_F0 1RECV_F1 1F0 1SEND_F0 1RECV_B0 1F1 1SEND_F1 1I0 1SEND_B0 1RECV_B1 1W0 1I1 1SEND_B1 1W1"
    )


def test_lower_at_the_foot_of_a_v_hands_over_without_a_transfer() -> None:
    assert lowered("1F0 2F0 2B0 1I0 1W0", v_shaped(2)) == ("1RECV_F0 1F0 2RECV_B0 2F0 2SEND_F0 2B0 1I0 1SEND_B0 1W0")


@pytest.mark.parametrize(
    ("instructions", "whole"),
    [
        (  # whole already
            "1RECV_F0 1F0 1RECV_F1 1SEND_F0 1F1 1RECV_B0 1SEND_F1 1RECV_B1 1B0 1SEND_B0 1B1 1SEND_B1 REDUCE STEP",
            "1RECV_F0 1F0 1RECV_F1 1SEND_F0 1F1 1RECV_B0 1SEND_F1 1RECV_B1 1B0 1SEND_B0 1B1 1SEND_B1 REDUCE STEP",
        ),
        (  # a send and a receive that stand elsewhere than they would be put
            "1RECV_F0 1RECV_B0 1F0 1F1 1SEND_F0 1B0 1B1",
            "1RECV_F0 1RECV_B0 1RECV_F1 1F0 1F1 1SEND_F1 1SEND_F0 1RECV_B1 1B0 1SEND_B0 1B1 1SEND_B1",
        ),
        ("1F0 1B0 REDUCE STEP", "1RECV_F0 1RECV_B0 1F0 1SEND_F0 1B0 1SEND_B0 REDUCE STEP"),
        ("1RECV_F0", "1RECV_F0"),
        ("", ""),
    ],
    ids=["whole", "some", "with the end", "nothing computes", "empty"],
)
def test_lower_of_a_list_with_transfers_keeps_them_and_adds_the_others(instructions: str, whole: str) -> None:
    assert lowered(instructions, looping(3)) == whole
    assert lowered(whole, looping(3)) == whole


def test_lower_of_a_stage_that_is_not_there_leaves_it_to_the_checker() -> None:
    assert lowered("0F0 7F0", looping(2)) == "0F0 0SEND_F0 7F0"


@pytest.mark.parametrize(
    ("order", "result"),
    [
        ("0F0 0I0 0W0 0F1 0I1 0W1", "0F0 0B0 0F1 0B1"),  # the gradient of stage 0's input goes nowhere
        ("1F0 1I0 1W0", "1F0 1I0 1W0"),  # it leaves for worker 0 before W
        ("2F0 2I0 2W0", "2F0 2B0"),  # stage 1 is on the same worker
        ("3F0 3I0 3W0", "3F0 3I0 3W0"),
        ("0I0 0F1 0W0", "0I0 0F1 0W0"),
        ("0I0 0W1", "0I0 0W1"),
        ("0I0 2W0", "0I0 2W0"),
        ("0W0 0I0", "0W0 0I0"),
        ("0I0 0I1 0W1 0W0", "0I0 0B1 0W0"),
        ("0B0 0W0", "0B0 0W0"),
        ("", ""),
    ],
)
def test_join_in_a_v_joins_neighbouring_halves_whose_gradient_stays_on_its_worker(order: str, result: str) -> None:
    assert joined(order, v_shaped(2)) == result


def test_join_of_chunks_that_loop_joins_on_stage_0_and_on_a_lone_worker() -> None:
    assert joined("0I0 0W0 2I0 2W0", looping(2, 2)) == "0B0 2I0 2W0"
    assert joined("0I0 0W0 1I0 1W0", looping(1, 2)) == "0B0 1B0"


@pytest.mark.parametrize(
    ("placement", "stages"),
    [
        (looping(3), [(0, 1), (1, 2)]),
        (looping(2, 2), [(0, 1), (1, 2), (2, 3)]),
        (v_shaped(2), [(0, 1), (2, 3)]),
        (looping(1, 3), []),
    ],
)
def test_borders_are_where_neighbouring_stages_are_on_two_workers(
    placement: Placement, stages: list[tuple[int, int]]
) -> None:
    forwards = [Border(a, b, Kind.ACTIVATION) for a, b in stages]
    assert list(borders(placement, forward_only=True)) == forwards
    assert list(borders(placement)) == forwards + [Border(b, a, Kind.GRADIENT) for a, b in stages]


@pytest.mark.parametrize(
    ("one_end", "other_end", "channel"),
    [
        ("1SEND_F5", "2RECV_F5", Channel(1, 2, Kind.ACTIVATION)),
        ("2SEND_F5", "3RECV_F5", Channel(2, 0, Kind.ACTIVATION)),
        ("2SEND_B5", "1RECV_B5", Channel(2, 1, Kind.GRADIENT)),
        ("3SEND_B5", "2RECV_B5", Channel(0, 2, Kind.GRADIENT)),
    ],
)
def test_channel_of_both_ends_is_one_channel(one_end: str, other_end: str, channel: Channel) -> None:
    placement = looping(3, 2)
    send, receive = actions(f"{one_end} {other_end}")
    assert counterpart(send) == receive
    assert counterpart(receive) == send
    assert channel_of(send, placement) == channel_of(receive, placement) == channel
    assert (peer_of(send, placement), peer_of(receive, placement)) == (channel.receiver, channel.sender)


def test_peer_of_a_send_past_the_last_stage_is_refused() -> None:
    with pytest.raises(PlanError, match=r"stage 2 is outside \[0, 2\)"):
        peer_of(Action(1, Op.SEND_ACTIVATION, 0), looping(2))


def test_counterpart_of_a_compute_action_is_refused() -> None:
    with pytest.raises(PlanError, match="1F0 is not a transfer"):
        counterpart(Action(1, Op.FORWARD, 0))
