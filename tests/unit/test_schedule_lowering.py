"""Transfers: where lowering puts them, and which channel they use."""

import pytest

from coordinator.schedule.actions import Action, Op, PlanError, parse
from coordinator.schedule.channels import Channel, Kind, channel_of, counterpart, peer_of
from coordinator.schedule.lowering import lower
from coordinator.schedule.placement import Placement, looping


def actions(text: str) -> list[Action]:
    return [action for action in map(parse, text.split()) if isinstance(action, Action)]


def lowered(order: str, placement: Placement) -> str:
    return " ".join(map(str, lower(actions(order), placement=placement)))


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
