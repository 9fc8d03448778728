"""Which of several faults is the cause."""

import pytest
from takt.v1.workers_pb2 import ExecutorFailure

from coordinator.decode import faulted_of
from coordinator.failure import Fault, root_cause


def told_by(worker: int, *, stage: int | None, peer_lost: bool = False) -> Fault:
    """Return what the executor of ``worker``, which holds the stage of the same number, says of ``stage``."""
    failure = ExecutorFailure(type="Error", message="the loss is not finite", stage=stage, step=2, peer_lost=peer_lost)
    return faulted_of(worker, failure, stages=(worker,), log=f"logs/worker-{worker}.log").fault


def test_root_cause_of_a_vote_is_told_by_the_worker_that_holds_the_stage() -> None:
    error = root_cause([told_by(0, stage=1), told_by(1, stage=1), told_by(2, stage=1)])
    assert (error.worker, error.stage, error.log) == (1, 1, "logs/worker-1.log")


@pytest.mark.parametrize("peer_lost", [False, True])
def test_root_cause_of_a_failure_that_names_no_stage_is_its_own_worker(*, peer_lost: bool) -> None:
    error = root_cause([told_by(1, stage=None, peer_lost=peer_lost)])
    assert (error.worker, error.stage) == (1, 1)


def test_root_cause_told_at_second_hand_goes_before_a_lost_peer() -> None:
    assert root_cause([told_by(2, stage=None, peer_lost=True), told_by(0, stage=1)]).worker == 0
