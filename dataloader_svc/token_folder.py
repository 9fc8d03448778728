"""A folder of tokenised splits, so that a service that starts again need not tokenise again."""

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from dataloader_svc.split_key import SplitKey, service_digest
from dataloader_svc.token_file import DamagedError, pack, unpack
from dataloader_svc.tokens import TokenisedRows

SUFFIX = ".tokens"
UNFINISHED = ".unfinished"

_log = structlog.get_logger()


class TokenFolder:
    """The splits used last, one file each, named by the digest of their key.

    Nothing depends on it: what cannot be read is tokenised, what cannot be written is not kept, and the log says why.
    Any number of services may share the folder, and any may be killed at any time: a file gets its name when it is
    whole, and is read only as it was written.
    """

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        """Of all files, those that a killed service left unfinished included."""
        self._service = service_digest()  # of what runs, whatever becomes of the sources

    def get(self, key: SplitKey, tokenise: Callable[[], TokenisedRows]) -> TokenisedRows:
        """Return the rows of this key, out of their file where there is one."""
        started = time.perf_counter()
        name = self._name_of(key)
        rows = None if name is None else self._read(name)
        is_kept = rows is not None
        if rows is None:
            rows = tokenise()
            if name is not None and name == self._name_of(key):  # else a file changed while it was read
                self._write(name, rows)
        seconds = round(time.perf_counter() - started, 3)
        _log.info("split is loaded", task=key.task, split=key.split, rows=rows.num_rows, kept=is_kept, seconds=seconds)
        return rows

    def _name_of(self, key: SplitKey) -> str | None:
        """Return the name of the key's file; None where a file of the key cannot be read."""
        try:
            return key.digest(service=self._service)
        except OSError:  # who tokenises says so
            return None

    def _read(self, name: str) -> TokenisedRows | None:
        path = self._path / f"{name}{SUFFIX}"
        try:
            rows = unpack(path.read_bytes(), name=name)
        except FileNotFoundError:
            return None
        except (OSError, DamagedError) as error:
            _log.warning("kept tokens cannot be used and are made again", path=str(path), reason=str(error))
            return None
        with suppress(OSError):  # a folder that is only read
            path.touch()
        return rows

    def _write(self, name: str, rows: TokenisedRows) -> None:
        path, unfinished = self._path / f"{name}{SUFFIX}", self._path / f"{name}.{uuid.uuid4().hex}{UNFINISHED}"
        content = pack(rows, name=name)
        try:
            if len(content) > self._max_bytes:
                raise OSError(f"they take {len(content)} bytes, at most {self._max_bytes} are kept")
            self._path.mkdir(parents=True, exist_ok=True)
            self._make_room(len(content))
            try:
                unfinished.write_bytes(content)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("tokens cannot be kept", path=str(path), reason=str(error))

    def _make_room(self, num_bytes: int) -> None:
        """Remove the files used longest ago, until this many bytes more are within the limit."""
        found = []
        for path in (*self._path.glob(f"*{SUFFIX}"), *self._path.glob(f"*{UNFINISHED}")):
            with suppress(FileNotFoundError):  # another service removed it
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        for _, size, path in sorted(found, reverse=True):
            num_bytes += size
            if num_bytes > self._max_bytes:
                path.unlink(missing_ok=True)
