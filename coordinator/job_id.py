"""What an id of a job may look like: it names a folder, a series' label and a row, so that no id needs quoting."""

import re

from takt.rpc.errors import TaktError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class JobIdError(TaktError):
    """An id that no job can have."""


def check_job_id(job: str) -> None:
    """Raise JobIdError where no job can have the id ``job``."""
    if _ID.fullmatch(job) is None:
        raise JobIdError(
            f"job id is {job!r}; use letters, digits, '-', '_' and '.', a letter or digit first, at most 80"
        )
