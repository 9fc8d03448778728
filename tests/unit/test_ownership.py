import os
from pathlib import Path

import pytest

from coordinator.ownership import FolderInUseError, Ownership


def test_claim_folder_in_use_names_pid_and_address(tmp_path: Path) -> None:
    first = Ownership.claim(tmp_path, embedded=False)
    first.publish("127.0.0.1:7700")
    with pytest.raises(FolderInUseError, match=rf"pid {os.getpid()}, 127\.0\.0\.1:7700"):
        Ownership.claim(tmp_path, embedded=False)
    first.release()
    Ownership.claim(tmp_path, embedded=False).release()


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
