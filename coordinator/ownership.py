"""Who owns a state folder and its jobs: advisory locks that the operating system drops with the process."""

import fcntl
import json
import os
import uuid
from pathlib import Path

from takt.rpc.errors import TaktError

_FOLDER_LOCK = "coordinator.lock"


class FolderInUseError(TaktError):
    """Another coordinator serves the state folder."""


class Ownership:
    """This process's claim: its own lock, and, unless it is embedded, the one on the whole folder."""

    def __init__(self, state_dir: Path, owner: str) -> None:
        self._state_dir = state_dir
        self.owner = owner
        """Identity of this coordinator process."""
        self._descriptors: list[int] = []

    @classmethod
    def claim(cls, state_dir: Path, *, embedded: bool) -> "Ownership":
        """Take the locks.

        Raises:
            FolderInUseError: another coordinator has the folder, and this one is not embedded.
            OSError: the folder cannot be written.
        """
        (state_dir / "coordinators").mkdir(parents=True, exist_ok=True)
        ownership = cls(state_dir, uuid.uuid4().hex[:12])
        if not embedded and not ownership._take(ownership._folder_lock):
            raise FolderInUseError(
                f"state folder {state_dir} is in use by another coordinator ({_holder(ownership._folder_lock)}); "
                "stop that one, or pass another --state-dir"
            )
        ownership._take(ownership._own_lock)
        ownership.publish("an address not known yet")
        return ownership

    def publish(self, address: str) -> None:
        """Tell those who find the locks taken where this coordinator listens."""
        text = json.dumps({"pid": os.getpid(), "address": address}).encode()
        for descriptor in self._descriptors:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)

    def is_alive(self, owner: str) -> bool:
        """Whether the coordinator process ``owner`` still runs on this folder."""
        try:
            descriptor = os.open(self._lock_of(owner), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def bury(self, owner: str) -> None:
        """Remove what a dead coordinator left of its claim."""
        self._lock_of(owner).unlink(missing_ok=True)

    def release(self) -> None:
        """Drop the locks."""
        self._own_lock.unlink(missing_ok=True)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    @property
    def _folder_lock(self) -> Path:
        return self._state_dir / _FOLDER_LOCK

    @property
    def _own_lock(self) -> Path:
        return self._lock_of(self.owner)

    def _lock_of(self, owner: str) -> Path:
        return self._state_dir / "coordinators" / f"{owner}.lock"

    def _take(self, path: Path) -> bool:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptors.append(descriptor)
        return True


def address_of_holder(state_dir: Path) -> str | None:
    """Return where the coordinator that last had the folder said it listens; it may be gone."""
    try:
        return str(json.loads((state_dir / _FOLDER_LOCK).read_text())["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"pid {holder['pid']}, {holder['address']}"
    except (OSError, ValueError, KeyError):
        return "which has not said where yet"
