"""Parts of actions in spans that are written by hand."""

from collections.abc import Iterator

import pytest

from coordinator.trace.action_times import ActionTime, action_times
from coordinator.trace.timeline import Span, Track


def span(
    word: str, seconds: float, *, step: int = 1, embeddings: float = 0.0, layers: float = 0.0, head: float = 0.0
) -> Span:
    """Return the span of an action such as 0F3 that lasts so long."""
    return Span(
        track=Track.COMPUTE,
        name=word[1],
        start=10.0,
        end=10.0 + seconds,
        step=step,
        stage=int(word[0]),
        microbatch=int(word[2:]),
        embeddings=embeddings,
        layers=layers,
        head=head,
    )


def test_what_no_part_took_is_beside_them() -> None:
    first = [span("0F0", 4.0, embeddings=1.0, layers=2.0), span("0F1", 6.0, embeddings=2.0, layers=4.0)]
    last = [span("1F0", 0.5), span("1F0", 4.5, layers=1.5, head=2.0), span("1F1", 5.0, layers=3.5, head=1.0)]
    times, first_backward = action_times([first, last])
    assert times == {
        (0, "F"): ActionTime(seconds=5.0, embeddings=1.5, layers=3.0, head=0.0, beside=0.5),
        (1, "F"): ActionTime(seconds=5.0, embeddings=0.0, layers=2.5, head=1.5, beside=1.0),
    }
    assert first_backward == 0.0


def test_making_the_gradient_is_not_of_a_microbatch() -> None:
    """By step: the first backward is an I; beside it the embeddings take 1 in an I and 2 in a B."""

    def steps() -> Iterator[Span]:
        for step, making in ((1, 8.0), (2, 9.0), (3, 30.0)):
            yield span("0I0", 5.0 + making, step=step, embeddings=1.0 + making, layers=4.0)
            yield span("0B1", 7.0, step=step, embeddings=2.0, layers=5.0)
            yield span("0I2", 5.0, step=step, embeddings=1.0, layers=4.0)

    times, first_backward = action_times([steps()])
    assert first_backward == 9.0
    assert times[0, "I"] == ActionTime(seconds=5.0 + 9.0 / 2, embeddings=1.0, layers=4.0, head=0.0, beside=0.0)
    assert times[0, "B"] == ActionTime(seconds=7.0, embeddings=2.0, layers=5.0, head=0.0, beside=0.0)


def test_lone_backward_is_taken_as_it_is() -> None:
    times, first_backward = action_times([[span("0B0", 7.0, embeddings=2.0)]])
    assert (times[0, "B"].embeddings, first_backward) == (2.0, 0.0)


def test_replicas_have_microbatches_of_the_same_number() -> None:
    times, _ = action_times([[span("0F0", 4.0), span("0F1", 4.0)], [span("0F0", 6.0), span("0F1", 8.0)]])
    assert times[0, "F"].seconds == pytest.approx((4.0 + 7.0) / 2)
