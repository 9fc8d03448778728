"""Which step's rows a worker reads next."""

from stage_worker.engine.commands import Phase
from stage_worker.read_ahead import Key, ReadAhead


def train(step: int) -> Key:
    return Phase.TRAIN, "train", step


def evaluation(step: int, split: str = "validation") -> Key:
    return Phase.EVALUATE, split, step


def begun(ahead: ReadAhead) -> list[Key]:
    """Return all that is read next, in order."""
    return list(iter(ahead.begin_next, None))


def commanded(*keys: Key, num_ahead: int = 2, most_held: int = 9) -> ReadAhead:
    ahead = ReadAhead(num_ahead=num_ahead, most_held=most_held)
    for key in keys:
        ahead.expect(key, has_rows=True)
    return ahead


def test_read_ahead_commanded_steps_come_first_then_those_after_the_last() -> None:
    ahead = commanded(train(1), train(2))
    assert begun(ahead) == [train(1), train(2), train(3), train(4)]
    ahead.expect(train(3), has_rows=True)  # read already
    assert begun(ahead) == [train(5)]


def test_read_ahead_nothing_is_read_before_a_command() -> None:
    assert begun(commanded()) == []


def test_read_ahead_other_pass_is_read_first_once_it_is_commanded_and_keeps_what_is_held() -> None:
    ahead = commanded(train(7))
    assert begun(ahead) == [train(7), train(8), train(9)]
    ahead.expect(evaluation(1), has_rows=True)
    assert begun(ahead) == [evaluation(1), evaluation(2), evaluation(3)]
    ahead.release(train(7))
    ahead.expect(train(8), has_rows=True)
    assert begun(ahead) == [train(10)]


def test_read_ahead_pass_that_begins_again_is_read_again() -> None:
    ahead = commanded(evaluation(1), evaluation(2))
    assert begun(ahead) == [evaluation(step) for step in (1, 2, 3, 4)]
    for step in (3, 4):
        ahead.refuse(evaluation(step))
    for step in (1, 2):
        ahead.release(evaluation(step))
    assert begun(ahead) == []
    ahead.expect(evaluation(1), has_rows=True)
    assert begun(ahead) == [evaluation(1), evaluation(2)]


def test_read_ahead_beyond_a_step_that_cannot_be_had_nothing_is_read() -> None:
    ahead = commanded(train(1), num_ahead=3)
    assert [ahead.begin_next() for _ in range(3)] == [train(1), train(2), train(3)]
    ahead.refuse(train(3))
    assert begun(ahead) == []
    ahead.expect(train(2), has_rows=True)
    assert begun(ahead) == []


def test_read_ahead_refused_step_that_is_commanded_later_is_tried_again_once() -> None:
    ahead = commanded(train(1), num_ahead=1)
    assert begun(ahead) == [train(1), train(2)]
    ahead.refuse(train(2))
    ahead.expect(train(2), has_rows=True)
    assert begun(ahead) == [train(2), train(3)]
    ahead.refuse(train(2))
    assert begun(ahead) == []


def test_read_ahead_steps_held_have_a_limit_until_one_is_released() -> None:
    ahead = commanded(train(1), num_ahead=9, most_held=3)
    assert begun(ahead) == [train(1), train(2), train(3)]
    ahead.expect(train(2), has_rows=True)
    ahead.release(train(1))
    assert begun(ahead) == [train(4)]


def test_read_ahead_commanded_step_does_not_wait_for_steps_that_are_only_read_ahead() -> None:
    ahead = commanded(train(1), num_ahead=9, most_held=3)
    assert len(begun(ahead)) == 3
    ahead.expect(evaluation(1), has_rows=True)
    assert begun(ahead) == [evaluation(1)]


def test_read_ahead_commanded_steps_have_the_same_limit() -> None:
    ahead = commanded(*(train(step) for step in range(1, 6)), most_held=3)
    assert begun(ahead) == [train(1), train(2), train(3)]
    ahead.release(train(1))
    assert begun(ahead) == [train(4)]


def test_read_ahead_step_without_rows_is_passed_over() -> None:
    ahead = ReadAhead(num_ahead=1, most_held=9)
    ahead.expect(train(1), has_rows=False)
    assert not ahead.is_expected(train(1))
    assert begun(ahead) == [train(2)]


def test_read_ahead_step_that_was_read_and_has_no_rows_is_not_read_again() -> None:
    ahead = commanded(train(1), num_ahead=1)
    assert begun(ahead) == [train(1), train(2)]
    ahead.expect(train(2), has_rows=False)
    ahead.release(train(2))
    assert begun(ahead) == [train(3)]
