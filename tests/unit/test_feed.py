"""What an executor is sent, and sent again on another stream."""

import pytest
from takt.v1 import commands_pb2

from coordinator.feed import Feed


def commands(count: int, *, step: int = 1) -> commands_pb2.StepCommands:
    listed = [commands_pb2.Command(op=commands_pb2.OP_FORWARD, microbatch=m) for m in range(count)]
    return commands_pb2.StepCommands(step=step, commands=listed, ends_step=True)


def ranges(messages: list[commands_pb2.StepCommands]) -> list[tuple[int, int]]:
    """Return the first and the last number of each message."""
    return [(message.first_seq, message.first_seq + len(message.commands) - 1) for message in messages]


def test_feed_sends_again_what_is_not_done_whole_messages_in_order() -> None:
    feed = Feed(strict=False)
    for step, count in enumerate((3, 1, 3), start=1):
        feed.offer(commands(count, step=step))
    assert ranges(feed.resume(0)) == [(1, 3), (4, 4), (5, 7)]
    assert feed.done(3) == []
    assert ranges(feed.resume(3)) == [(4, 4), (5, 7)]
    assert ranges(feed.resume(5)) == [(5, 7)]  # the executor drops what it knows of it
    assert ranges(feed.resume(0)) == [(5, 7)]  # nothing is forgotten that was once done
    assert ranges(feed.resume(7)) == []


def test_feed_goes_on_counting_after_a_break() -> None:
    feed = Feed(strict=False)
    feed.offer(commands(2))
    feed.resume(2)
    assert ranges(feed.offer(commands(2, step=2))) == [(3, 4)]


@pytest.mark.parametrize("was_done", [False, True])
def test_feed_strict_goes_on_from_what_the_executor_says_is_done(was_done: bool) -> None:
    """The word that command 2 is done was lost, or it was not done yet; both times only one command is out."""
    feed = Feed(strict=True)
    feed.offer(commands(3))
    feed.done(1)
    assert ranges(feed.resume(2 if was_done else 1)) == [(3, 3) if was_done else (2, 2)]
    out = [*feed.done(2), *feed.done(2), *feed.done(3), *feed.done(3)]
    assert ranges(out) == ([] if was_done else [(3, 3)])


def test_feed_strict_late_word_of_an_earlier_command_lets_nothing_out() -> None:
    feed = Feed(strict=True)
    feed.offer(commands(4))
    feed.done(1)
    feed.done(2)
    assert feed.done(1) == []
    assert ranges(feed.resume(0)) == [(3, 3)]


@pytest.mark.parametrize("strict", [False, True])
def test_feed_of_a_run_that_is_carried_on_leaves_out_what_the_executor_has_done(strict: bool) -> None:
    feed = Feed(strict=strict, num_before=10)
    feed.resume(14)
    assert ranges(feed.offer(commands(2))) == []  # 11 and 12
    assert ranges(feed.offer(commands(3))) == ([(15, 15)] if strict else [(13, 15)])
