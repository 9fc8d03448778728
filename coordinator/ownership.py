"""Who owns a state folder and its jobs.

An advisory lock, which the operating system drops with the process, says which coordinators are alive. Who
serves the whole folder has the lease in the job store, and says once a second that it lives. A process that
stands still keeps its lock; once it was silent for `SILENCE_SECONDS` the next one takes the lease from it, and
what it would write when it wakes up is refused by the store.
"""

import fcntl
import json
import os
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from takt.rpc.errors import TaktError

from coordinator.records import Lease
from coordinator.store import Store, StoreError

BEAT_SECONDS = 1.0
SILENCE_SECONDS = 10.0
"""After which whoever serves a folder counts as standing still."""
_WATCH_SECONDS = 2.5 * BEAT_SECONDS
"""How long it is watched all the same: after a sleep of the whole machine it had no time to speak."""
_ADDRESS_SECONDS = 3.0
"""What another coordinator that has just begun gets to say where it listens."""
_POLL_SECONDS = 0.1


_OF_RUN = "-"
"""Between the identity of a `takt run` and that of a process that serves it."""


def served(owner: str, run: str) -> bool:
    """Whether the coordinator process ``owner`` served a `takt run`."""
    return owner.startswith(f"{run}{_OF_RUN}")


class FolderInUseError(TaktError):
    """Another coordinator serves the state folder."""


class Ownership:
    """This process's claim: its own lock, and, unless it is embedded, the lease of the whole folder."""

    def __init__(self, state_dir: Path, owner: str) -> None:
        self._state_dir = state_dir
        self.owner = owner
        """Identity of this coordinator process."""
        self._descriptor: int | None = None

    @classmethod
    def claim(
        cls, state_dir: Path, *, embedded: bool, run: str = "", before_takeover: Callable[[], None] = lambda: None
    ) -> "Ownership":
        """Take the lock, and the lease.

        Args:
            state_dir: the state folder.
            embedded: whether this process serves only its own jobs, and needs no lease.
            run: the `takt run` that this process serves, if it serves one.
            before_takeover: called before the lease is taken from a process that stands still; raises where this one
                could not serve in its place.

        Raises:
            FolderInUseError: another coordinator has the folder, and this one is not embedded.
            StoreError: the job store, which has the lease, cannot be opened.
            OSError: the folder cannot be written.
        """
        (state_dir / "coordinators").mkdir(parents=True, exist_ok=True)
        ownership = cls(state_dir, f"{run}{_OF_RUN}{uuid.uuid4().hex[:12]}" if run else uuid.uuid4().hex[:12])
        ownership._descriptor = os.open(ownership._own_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(ownership._descriptor, fcntl.LOCK_EX)
        try:
            ownership.publish("")
            if not embedded:
                ownership._take_lease(before_takeover)
        except BaseException:
            ownership.release()
            raise
        return ownership

    def publish(self, address: str) -> None:
        """Tell those who find this process alive where it listens; empty: nowhere yet."""
        assert self._descriptor is not None, "it was not released"
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps({"pid": os.getpid(), "address": address}).encode(), 0)

    def is_alive(self, owner: str) -> bool:
        """Whether the coordinator process ``owner`` still runs on this folder, and was not found standing still."""
        try:
            descriptor = os.open(self._lock_of(owner), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, or two that ask would see each other
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def bury(self, owner: str) -> None:
        """Remove what a dead coordinator left of its claim."""
        self._lock_of(owner).unlink(missing_ok=True)

    def release(self) -> None:
        """Drop the lock; the lease of a dead process is anybody's."""
        self._own_lock.unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take_lease(self, before_takeover: Callable[[], None]) -> None:
        lease = _lease(self._state_dir)
        if lease is not None and self.is_alive(lease.owner):
            if time.time() - lease.beat < SILENCE_SECONDS:
                raise self._in_use(lease.owner)
            time.sleep(_WATCH_SECONDS)  # if it speaks meanwhile, the lease is another one than that which is taken
            before_takeover()
        try:
            with closing(Store.open(self._state_dir, owner=self.owner)) as store:
                taken = store.take_lease(seen=lease, now=time.time())
        except (StoreError, sqlite3.OperationalError) as error:
            if lease is None or not self.is_alive(lease.owner):
                raise
            raise FolderInUseError(
                f"state folder {self._state_dir} is in use by another coordinator ({self._name(lease.owner)}), which "
                f"stands still while it writes to the job store; wake it up or kill it, then try again: {error}"
            ) from error
        if not taken:
            quicker = _lease(self._state_dir)
            assert quicker is not None, "it was taken by somebody"
            raise self._in_use(quicker.owner)
        if lease is not None:
            self.bury(lease.owner)

    def _in_use(self, holder: str) -> FolderInUseError:
        return FolderInUseError(
            f"state folder {self._state_dir} is in use by another coordinator ({self._name(holder)}); "
            "stop that one, or pass another --state-dir"
        )

    def _name(self, owner: str) -> str:
        """Return pid and address of a coordinator; one that has just begun gets a while to say where it listens."""
        give_up, name = time.monotonic() + _ADDRESS_SECONDS, "which has not said where yet"
        while time.monotonic() < give_up:
            try:
                said = json.loads(self._lock_of(owner).read_text())
                name = f"pid {said['pid']}, {said['address'] or 'an address not known yet'}"
                if said["address"]:
                    break
            except (OSError, ValueError):  # it is gone, or is writing
                pass
            time.sleep(_POLL_SECONDS)
        return name

    @property
    def _own_lock(self) -> Path:
        return self._lock_of(self.owner)

    def _lock_of(self, owner: str) -> Path:
        return self._state_dir / "coordinators" / f"{owner}.lock"


def address_of_holder(state_dir: Path) -> str | None:
    """Return where the coordinator that last served the folder said it listens; it may be gone."""
    lease = _lease(state_dir)
    return None if lease is None else lease.address or None


def _lease(state_dir: Path) -> Lease | None:
    try:
        with closing(Store.open_read_only(state_dir)) as store:
            return store.lease()
    except StoreError:  # nobody has made it yet, or it is no store, as who opens it for writing will say
        return None
