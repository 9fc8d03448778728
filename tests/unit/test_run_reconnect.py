"""A run whose executors' streams break and come back."""

import pytest

from coordinator.events import Connected, Disconnected, Ready, Started, StoreOpened
from coordinator.run_state import Life
from tests.unit.run_script import Script, setting, step


def test_ready_worker_that_comes_back_by_another_stream_is_still_ready() -> None:
    script = Script(setting(credit=1))
    script.feed(Connected(0, 1), StoreOpened(0, "h0:99"), Connected(1, 2), Ready(1, 10, 20))
    assert script.feed(Disconnected(1), Connected(1, 2)) == ["meet 1 h0:99"]
    assert script.feed(Ready(0, 10, 20)) == ["RUNNING", "issue step 1"]


@pytest.mark.parametrize("worker", [0, 1])
def test_stream_that_breaks_during_a_step_changes_neither_what_is_issued_nor_what_is_committed(worker: int) -> None:
    script = Script(setting(credit=1, total_steps=9))
    script.make_ready()
    address = script.state.rendezvous
    assert address is not None
    assert script.feed(step(1, 1 - worker), Disconnected(worker)) == []
    assert script.feed(Connected(worker, 1 + worker)) == [f"meet {worker} {address}"]
    assert script.feed(StoreOpened(0, address), Ready(worker, 10, 20)) == []
    assert script.feed(step(1, worker)) == ["issue step 2", "commit 1 of 0,1"]


def test_store_that_is_told_of_again_is_told_to_nobody() -> None:
    script = Script(setting())
    script.feed(Connected(0, 1), StoreOpened(0, "h0:99"), Connected(1, 2))
    assert script.feed(StoreOpened(0, "h0:99")) == []


def test_agent_that_comes_back_says_again_what_it_started_and_nothing_changes() -> None:
    script = Script(setting(credit=1))
    script.make_ready()
    before = script.state
    assert script.feed(Started(1, 2, "logs/worker-1.log"), Started(1, 2, "logs/worker-1.log")) == []
    assert [member.life for member in script.state.members] == [Life.READY, Life.READY]
    assert script.state.outstanding == before.outstanding
