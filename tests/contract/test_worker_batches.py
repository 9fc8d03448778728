"""Rows that are read ahead from a data service."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
import structlog
import torch
from takt.rpc.client import channel

from stage_worker.batches import MAX_STEPS_HELD, NUM_STEPS_AHEAD, DataServiceSource
from stage_worker.engine.batch_source import DataError
from stage_worker.engine.commands import Phase, Shape, StepSetting
from tests.contract.fake_data_service import FakeDataService, serving

SHAPES = ((3, 7), (2, 4), (0, 0))


def setting(step: int, shapes: tuple[tuple[int, int], ...] = SHAPES) -> StepSetting:
    return StepSetting(Phase.TRAIN, "train", step, 5, tuple(Shape(*shape) for shape in shapes))


@contextmanager
def source(address: str, **changes: Any) -> Iterator[DataServiceSource]:
    settings: dict[str, Any] = {"columns": {"labels", "attention_mask"}, "limit_seconds": 10.0, **changes}
    with channel(address) as opened:
        batches = DataServiceSource(opened, address=address, job="a", dp_rank=1, **settings)
        try:
            yield batches
        finally:
            batches.close()


def test_batches_get_returns_the_rows_of_that_microbatch_and_only_the_columns_asked_for() -> None:
    service = FakeDataService(SHAPES)
    with serving(service) as address, source(address) as batches:
        second = batches.get(setting(4), 1)
        first = batches.get(setting(4), 0)
    assert first.row_ids == (400, 401, 402)
    assert second.row_ids == (410, 411)
    assert second.attention_mask_BL.shape == (2, 4)
    assert second.labels is not None
    assert torch.equal(second.labels, torch.tensor([0, 1]))
    assert second.input_ids_BL is None
    request, *ahead = service.requests  # one call a step
    assert len({each.step for each in ahead}) == len(ahead)
    assert (request.job, request.split, request.step, request.dp_rank) == ("a", "train", 4, 1)
    assert list(request.columns) == ["attention_mask", "labels"]


def test_batches_ask_for_the_rows_that_the_job_was_checked_with() -> None:
    service = FakeDataService(SHAPES)
    with serving(service) as address, source(address, digests={"train": "t", "test": "v"}) as batches:
        batches.get(setting(1), 0)
        batches.get(StepSetting(Phase.EVALUATE, "test", 1, 5, setting(1).microbatches), 0)
    assert {(request.split, request.digest) for request in service.requests} == {("train", "t"), ("test", "v")}


def test_batches_steps_are_read_before_anybody_asks_and_before_they_are_commanded() -> None:
    service = FakeDataService(SHAPES)
    with serving(service) as address, source(address) as batches:
        batches.expect(setting(1))
        batches.expect(setting(2))
        batches.expect(setting(2))
        service.wait_for_steps(set(range(1, 2 + NUM_STEPS_AHEAD + 1)))
        for step in (1, 2, 3):
            assert batches.get(setting(step), 0).row_ids == (100 * step, 100 * step + 1, 100 * step + 2)
    assert [request.step for request in service.requests][: 2 + NUM_STEPS_AHEAD] == list(range(1, 3 + NUM_STEPS_AHEAD))


def test_batches_end_of_a_pass_is_told_only_to_who_commands_what_is_beyond() -> None:
    service = FakeDataService(SHAPES)
    service.last = 2
    with serving(service) as address, source(address) as batches:
        batches.expect(setting(1))
        service.wait_for_steps({1, 2, 3})
        assert batches.get(setting(2), 1).row_ids == (210, 211)
        batches.release(setting(1))
        with pytest.raises(DataError, match="OUT_OF_RANGE: step is 3, the phase has 2 steps"):
            batches.get(setting(3), 0)
    # It was refused before or after it was asked for; nothing beyond it is tried either way.
    assert [request.step for request in service.requests] in ([1, 2, 3], [1, 2, 3, 3])


def test_batches_hold_no_more_steps_than_the_limit_until_one_is_released() -> None:
    service = FakeDataService(SHAPES)
    last = MAX_STEPS_HELD + 1
    with serving(service) as address, source(address) as batches:
        for step in range(1, last + 1):
            batches.expect(setting(step))
        for step in range(1, last):
            batches.get(setting(step), 0)
        service.wait_for_steps(set(range(1, last)))
        assert last not in {request.step for request in service.requests}
        batches.release(setting(1))
        assert batches.get(setting(last), 1).row_ids == (100 * last + 10, 100 * last + 11)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
def test_batches_call_that_breaks_off_is_repeated(code: grpc.StatusCode) -> None:
    service = FakeDataService(SHAPES)
    service.failures = [code, code]
    with serving(service) as address, source(address) as batches:
        assert batches.get(setting(1), 1).row_ids == (110, 111)
    assert [request.step for request in service.requests[:3]] == [1, 1, 1]


def test_batches_service_that_comes_back_is_found_again() -> None:
    service = FakeDataService(SHAPES)
    with serving(service) as address:
        pass
    with source(address, limit_seconds=20.0) as batches:
        batches.expect(setting(1))
        with serving(service, address):
            assert batches.get(setting(1), 0).row_ids == (100, 101, 102)


def test_batches_refusal_of_the_service_is_told_at_once_and_in_full() -> None:
    service = FakeDataService(SHAPES)
    service.failures = [grpc.StatusCode.INVALID_ARGUMENT]
    with serving(service) as address, source(address) as batches:
        with pytest.raises(DataError) as caught:
            batches.get(setting(3), 1)
        text = str(caught.value)
    assert "microbatch 1 of train step 3" in text
    assert "attention_mask, labels of dp rank 1" in text
    assert address in text
    assert "INVALID_ARGUMENT: as the test wants it" in text
    assert len(service.requests) == 1


def test_batches_service_that_stays_away_is_given_up_after_the_limit() -> None:
    with serving(FakeDataService(SHAPES)) as address:
        pass
    with (
        source(address, limit_seconds=0.5) as batches,
        pytest.raises(DataError, match=r"no answer for 0\.5 s, the last one was UNAVAILABLE"),
    ):
        batches.get(setting(1), 0)


def test_batches_service_that_is_silent_is_told_in_the_log_and_given_up_after_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stage_worker.batches._LATE_SECONDS", 0.1)
    service = FakeDataService(SHAPES)
    service.silent.set()
    with structlog.testing.capture_logs() as logs, serving(service) as address:
        with source(address, limit_seconds=0.5) as batches:
            with pytest.raises(DataError) as caught:
                batches.get(setting(1), 0)
            service.silent.clear()
        text = str(caught.value)
    who = f"microbatch 0 of train step 1 (attention_mask, labels of dp rank 1, from the data service at {address})"
    assert text == f"{who} cannot be had: no answer for 0.5 s, the call is still open"
    assert [(line["event"], line.get("rows")) for line in logs] == [
        ("rows are waited for", who),
        ("rows are waited for no longer", None),
    ]


def test_batches_service_that_is_away_while_nobody_waits_is_asked_until_it_is_back() -> None:
    service = FakeDataService(SHAPES)
    with serving(service) as address:
        pass
    with source(address, limit_seconds=1.0) as batches:
        batches.expect(setting(1))
        time.sleep(1.2)  # longer than anybody would wait
        with serving(service, address):
            service.wait_for_steps({1})
            assert batches.get(setting(1), 0).row_ids == (100, 101, 102)


def test_batches_rows_other_than_announced_are_refused() -> None:
    with (
        serving(FakeDataService(SHAPES)) as address,
        source(address) as batches,
        pytest.raises(DataError, match="has 3 rows, not 2"),
    ):
        batches.get(setting(1, ((2, 7), (2, 4), (0, 0))), 0)


def test_batches_width_other_than_announced_is_refused() -> None:
    with (
        serving(FakeDataService(SHAPES)) as address,
        source(address) as batches,
        pytest.raises(DataError, match="is 7 wide, not 8"),
    ):
        batches.get(setting(1, ((3, 8), (2, 4), (0, 0))), 0)


def test_batches_microbatches_more_than_announced_are_refused() -> None:
    service = FakeDataService(SHAPES)
    with serving(service) as address, source(address) as batches:
        batches.expect(setting(1))
        service.wait_for_steps({2})  # so all of step 1 is there
        with pytest.raises(DataError, match="3 microbatches came, the step has 2"):
            batches.get(setting(1, SHAPES[:2]), 0)


def test_batches_microbatch_that_the_service_leaves_out_is_named() -> None:
    with (
        serving(FakeDataService(SHAPES)) as address,
        source(address) as batches,
        pytest.raises(DataError, match=r"the service left out microbatches \[3\]"),
    ):
        batches.get(setting(1, (*SHAPES, (1, 5))), 3)


def test_batches_step_without_rows_is_never_asked_for() -> None:
    service = FakeDataService(SHAPES)
    with serving(service) as address, source(address) as batches:
        batches.expect(setting(1, ((0, 0),)))
        with pytest.raises(DataError, match="no rows at all"):
            batches.get(setting(1, ((0, 0),)), 0)
        batches.get(setting(2), 0)
    assert {request.step for request in service.requests} <= set(range(2, 3 + NUM_STEPS_AHEAD))
