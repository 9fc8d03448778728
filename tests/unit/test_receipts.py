"""Which numbered messages a worker may forget."""

import pytest
from takt.v1 import commands_pb2, data_pb2
from takt.v1 import workers_pb2 as pb

from coordinator.events import Item, ItemKind
from coordinator.receipts import Receipts, evaluation, subject_of
from coordinator.run_state import Outstanding


def test_acknowledged_stays_before_the_first_message_whose_item_is_not_settled() -> None:
    receipts = Receipts(1)
    assert receipts.acknowledged(0) == 0
    for number, item in enumerate(["step 1", "save 1", "step 2", "save 1", "step 3"], start=1):
        assert receipts.note(0, number, item)
        assert receipts.acknowledged(0) == 0
    receipts.settle("step 2")
    assert receipts.acknowledged(0) == 0
    receipts.settle("step 1")
    assert receipts.acknowledged(0) == 1
    receipts.settle("save 1")
    assert receipts.acknowledged(0) == 4
    receipts.settle("step 3")
    assert receipts.acknowledged(0) == 5


def test_message_of_no_use_is_acknowledged_once_those_before_it_are() -> None:
    receipts = Receipts(1)
    receipts.note(0, 1, "step 1")
    receipts.note(0, 2, None)
    assert receipts.acknowledged(0) == 0
    receipts.settle("step 1")
    assert receipts.acknowledged(0) == 2


def test_message_that_was_heard_is_not_new_whether_settled_or_not() -> None:
    receipts = Receipts(1)
    assert [receipts.note(0, number, f"step {number}") for number in (1, 2, 1, 2, 3, 2)] == [
        True, True, False, False, True, False,
    ]  # fmt: skip
    for step in (1, 2, 3):
        receipts.settle(f"step {step}")
    assert receipts.acknowledged(0) == 3
    assert not receipts.note(0, 3, "step 3")
    assert receipts.acknowledged(0) == 3


def test_message_without_a_number_is_always_new_and_never_acknowledged() -> None:
    receipts = Receipts(1)
    assert receipts.note(0, 0, None)
    assert receipts.note(0, 0, None)
    assert receipts.acknowledged(0) == 0


def test_worker_that_was_ahead_of_this_program_is_acknowledged_from_what_it_says_first() -> None:
    receipts = Receipts(1)
    assert receipts.note(0, 57, "step 9")
    assert receipts.acknowledged(0) == 56  # it kept nothing before that
    receipts.settle("step 9")
    assert receipts.acknowledged(0) == 57


def test_workers_count_each_for_itself_and_an_item_settles_for_all() -> None:
    receipts = Receipts(3)
    receipts.note(0, 1, "step 1")
    receipts.note(1, 1, "rows")
    receipts.note(1, 2, "step 1")
    receipts.settle("step 1")
    assert [receipts.acknowledged(worker) for worker in range(3)] == [1, 0, 0]
    receipts.settle("rows")
    assert [receipts.acknowledged(worker) for worker in range(3)] == [1, 2, 0]


def outstanding(*items: Item) -> list[Outstanding]:
    return [Outstanding(item=item, waiting=frozenset()) for item in items]


TRAIN = commands_pb2.StepReport(phase=data_pb2.PHASE_TRAIN, step=3, after=3)
EVALUATED = commands_pb2.StepReport(phase=data_pb2.PHASE_EVALUATE, step=2, after=2)


@pytest.mark.parametrize(
    ("message", "subject"),
    [
        (pb.ExecuteRequest(step=TRAIN), Item(ItemKind.TRAIN, 3, 3)),
        (pb.ExecuteRequest(step=EVALUATED), evaluation("dev", 2)),
        (pb.ExecuteRequest(rows=pb.EvaluationRows(split="dev", step=2, after=2)), evaluation("dev", 2)),
        (pb.ExecuteRequest(saved=pb.ShardsSaved(step=2)), Item(ItemKind.SAVE, 2, 2)),
        (pb.ExecuteRequest(ready=pb.ExecutorReady()), None),
        (pb.ExecuteRequest(done=pb.CommandDone(seq=4)), None),
    ],
)
def test_message_is_filed_under_the_item_that_was_issued(message: pb.ExecuteRequest, subject: object) -> None:
    issued = outstanding(
        Item(ItemKind.TRAIN, 2, 2), Item(ItemKind.EVALUATE, 2, 2, "dev"), Item(ItemKind.TRAIN, 3, 3)
    )  # fmt: skip
    assert subject_of(message, issued) == subject


def test_failure_is_kept_by_its_worker_to_the_end_of_the_run() -> None:
    receipts = Receipts(1)
    failure = pb.ExecuteRequest(failure=pb.ExecutorFailure(type="ValueError"))
    receipts.note(0, 1, subject_of(failure, outstanding(Item(ItemKind.TRAIN, 1, 1))))
    for kind in (ItemKind.TRAIN, ItemKind.SAVE):
        receipts.settle(Item(kind, 1, 1))
    assert receipts.acknowledged(0) == 0


def test_report_of_an_evaluation_that_nobody_issued_is_of_no_use() -> None:
    assert subject_of(pb.ExecuteRequest(step=EVALUATED), outstanding(Item(ItemKind.TRAIN, 1, 1))) is None
