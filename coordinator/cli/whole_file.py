"""Files that a command writes where it is told to."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_file(path: Path, pieces: Iterable[str]) -> None:
    """Write the text ``pieces`` make; until all of it is on disk, what was at ``path`` stays as it is.

    Raises:
        OSError: That failed; nothing else is left behind.
    """
    if path.exists() and not path.is_file():  # a device or a pipe, or a folder, which is refused here
        with path.open("w") as file:
            file.writelines(pieces)
        return
    target = path.resolve()  # of a link the file that it leads to
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(handle, "w") as file:
            file.writelines(pieces)
        os.chmod(draft, mode)
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink()
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
