import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from coordinator import ownership
from coordinator.ownership import FolderInUseError, Ownership, address_of_holder
from coordinator.records import JobRecord, JobState, Lease
from coordinator.store import Store


def lease(state_dir: Path) -> Lease:
    with closing(Store.open_read_only(state_dir)) as store:
        found = store.lease()
    assert found is not None
    return found


def set_beat(state_dir: Path, claim: Ownership, ago_seconds: float) -> None:
    with closing(Store.open(state_dir, owner=claim.owner, needs_lease=True)) as store:
        store.beat("127.0.0.1:7700", now=time.time() - ago_seconds)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(ownership, "_ADDRESS_SECONDS", 0.2)


def test_claim_folder_in_use_names_pid_and_address(tmp_path: Path) -> None:
    first = Ownership.claim(tmp_path, embedded=False)
    first.publish("127.0.0.1:7700")
    with pytest.raises(FolderInUseError, match=rf"pid {os.getpid()}, 127\.0\.0\.1:7700"):
        Ownership.claim(tmp_path, embedded=False)
    assert [path.stem for path in (tmp_path / "coordinators").iterdir()] == [first.owner]
    first.release()
    second = Ownership.claim(tmp_path, embedded=False)
    assert (lease(tmp_path).epoch, lease(tmp_path).owner) == (2, second.owner)
    second.release()


@pytest.mark.usefixtures("quick")
def test_claim_of_one_that_does_not_say_its_address_is_refused_all_the_same(tmp_path: Path) -> None:
    first = Ownership.claim(tmp_path, embedded=False)
    with pytest.raises(FolderInUseError, match=rf"pid {os.getpid()}, an address not known yet"):
        Ownership.claim(tmp_path, embedded=False)
    first.release()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("ago_seconds", "taken"), [(9.0, False), (11.0, True)])
def test_claim_takes_the_folder_from_one_that_stands_still_for_ten_seconds(
    ago_seconds: float, taken: bool, tmp_path: Path
) -> None:
    first = Ownership.claim(tmp_path, embedded=False)
    set_beat(tmp_path, first, ago_seconds)
    if taken:
        second = Ownership.claim(tmp_path, embedded=False)
        assert (lease(tmp_path).owner, second.is_alive(first.owner), first.is_alive(second.owner)) == (
            second.owner,
            False,
            True,
        )
        first.release()
        assert second.is_alive(second.owner), "what the first one lets go is its own"
        second.release()
    else:
        with pytest.raises(FolderInUseError):
            Ownership.claim(tmp_path, embedded=False)
        first.release()


def test_claim_of_one_that_wakes_up_while_it_is_watched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Ownership.claim(tmp_path, embedded=False)
    set_beat(tmp_path, first, 3600.0)
    monkeypatch.setattr(ownership, "_ADDRESS_SECONDS", 0.2)
    monkeypatch.setattr("time.sleep", lambda _: set_beat(tmp_path, first, 0.0))
    with pytest.raises(FolderInUseError):
        Ownership.claim(tmp_path, embedded=False)
    first.release()


@pytest.mark.usefixtures("quick")
def test_claim_of_one_that_stands_still_while_it_writes_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Ownership.claim(tmp_path, embedded=False)
    set_beat(tmp_path, first, 3600.0)
    monkeypatch.setattr("coordinator.store_schema.BUSY_SECONDS", 0.05)
    store = Store.open(tmp_path, owner=first.owner)
    store.add_job(
        JobRecord(
            id="j", name="j", spec_json="{}", digest="d", owner=first.owner, num_slots=1,
            state=JobState.QUEUED, reason="submitted", created=1.0,
        )
    )  # fmt: skip
    with (
        store.owned("j"),
        pytest.raises(FolderInUseError, match=r"stands still while it writes to the job store; wake it up or kill it"),
    ):
        Ownership.claim(tmp_path, embedded=False)
    first.release()


def test_address_of_holder_is_the_last_one_that_was_told(tmp_path: Path) -> None:
    assert address_of_holder(tmp_path) is None
    first = Ownership.claim(tmp_path, embedded=False)
    assert address_of_holder(tmp_path) is None
    set_beat(tmp_path, first, 0.0)
    assert address_of_holder(tmp_path) == "127.0.0.1:7700"
    first.release()


def test_claim_embedded_takes_no_folder_and_is_not_kept_out(tmp_path: Path) -> None:
    claims = [Ownership.claim(tmp_path, embedded=embedded) for embedded in (True, False, True)]
    assert len({claim.owner for claim in claims}) == 3
    for claim in claims:
        claim.release()


def test_is_alive_until_released(tmp_path: Path) -> None:
    mine, other = Ownership.claim(tmp_path, embedded=True), Ownership.claim(tmp_path, embedded=True)
    assert mine.is_alive(other.owner)
    assert mine.is_alive(mine.owner)
    other.release()
    assert not mine.is_alive(other.owner)
    mine.release()


def test_is_alive_lock_file_of_a_dead_process_is_not(tmp_path: Path) -> None:
    mine = Ownership.claim(tmp_path, embedded=True)
    (tmp_path / "coordinators" / "dead.lock").write_text("{}")
    assert not mine.is_alive("dead")
    mine.bury("dead")
    mine.bury("dead")
    assert [path.name for path in (tmp_path / "coordinators").iterdir()] == [f"{mine.owner}.lock"]
    mine.release()
