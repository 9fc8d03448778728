"""Fencing of commands by (job, attempt, seq)."""

import pytest
from takt.v1 import commands_pb2 as pb

from stage_worker.fence import Fence, FenceError

FORWARD, BACKWARD, STEP = pb.OP_FORWARD, pb.OP_BACKWARD, pb.OP_STEP


def commands(*ops: pb.Op, first_seq: int, job: str = "a", attempt: int = 2) -> pb.StepCommands:
    return pb.StepCommands(
        job=job, attempt=attempt, first_seq=first_seq, commands=[pb.Command(op=op) for op in ops], ends_step=True
    )


def test_fence_consecutive_commands_pass_unchanged() -> None:
    fence = Fence("a", 2)
    first, second = commands(FORWARD, BACKWARD, first_seq=1), commands(STEP, first_seq=3)
    assert fence.admit(first) == first
    assert fence.admit(second) == second


def test_fence_repeated_commands_are_dropped() -> None:
    fence = Fence("a", 2)
    fence.admit(commands(FORWARD, BACKWARD, first_seq=1))
    assert fence.admit(commands(FORWARD, BACKWARD, first_seq=1)) is None
    assert fence.admit(commands(BACKWARD, first_seq=2)) is None
    assert fence.admit(commands(STEP, first_seq=3)) is not None


def test_fence_partly_known_commands_keep_what_is_new() -> None:
    fence = Fence("a", 2)
    fence.admit(commands(FORWARD, first_seq=1))
    rest = fence.admit(commands(FORWARD, BACKWARD, STEP, first_seq=1))
    assert rest == commands(BACKWARD, STEP, first_seq=2)
    assert fence.admit(commands(STEP, first_seq=3)) is None


def test_fence_step_without_commands_passes() -> None:
    fence = Fence("a", 2)
    assert fence.admit(commands(first_seq=1)) is not None
    assert fence.admit(commands(FORWARD, first_seq=1)) is not None


def test_fence_gap_names_what_is_missing() -> None:
    fence = Fence("a", 2)
    fence.admit(commands(FORWARD, first_seq=1))
    with pytest.raises(FenceError, match="commands 2 to 4 are missing"):
        fence.admit(commands(STEP, first_seq=5))


def test_fence_lower_attempt_is_dropped_and_leaves_no_gap() -> None:
    fence = Fence("a", 2)
    assert fence.admit(commands(FORWARD, first_seq=1, attempt=1)) is None
    assert fence.admit(commands(FORWARD, first_seq=1)) is not None


@pytest.mark.parametrize(("job", "attempt"), [("b", 2), ("a", 3)])
def test_fence_other_job_or_later_attempt_is_refused(job: str, attempt: int) -> None:
    with pytest.raises(FenceError, match=f"job {job} attempt {attempt}, this executor works for job a attempt 2"):
        Fence("a", 2).admit(commands(FORWARD, first_seq=1, job=job, attempt=attempt))
