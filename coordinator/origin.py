"""What `checkpoint.from` names: a job's state, a step of it, or a folder."""

from dataclasses import dataclass
from pathlib import Path

from coordinator.checkpoints import MANIFEST
from coordinator.job_id import JobIdError, check_job_id
from coordinator.sections import JobSpec


@dataclass(frozen=True, slots=True)
class JobOrigin:
    """The state of another job."""

    job: str
    step: int | None
    """None: its newest checkpoint."""


def origin_of(text: str) -> JobOrigin | Path:
    """Return what ``text`` names: JOB_ID, JOB_ID@STEP, or an absolute path.

    Raises:
        ValueError: it is none of them.
    """
    if text.startswith("/"):
        return Path(text)
    job, at, step = text.partition("@")
    if at and not (step.isascii() and step.isdigit() and len(step) < 10):
        raise ValueError(f"is {text!r}, whose step {step!r} is no number; needs JOB_ID, JOB_ID@STEP or a folder")
    try:
        check_job_id(job)
    except JobIdError as error:
        raise ValueError(f"is {text!r}, which is neither a job's id nor a folder that is there: {error}") from None
    return JobOrigin(job, int(step) if at else None)


def folder_of(spec: JobSpec) -> str | None:
    """Return the Hugging Face folder whose weights a job begins with in place of its model's; None where there is none.

    A folder with a manifest is a checkpoint, of which more than the weights is taken.
    """
    text = spec.checkpoint.from_
    if text is None or not text.startswith("/") or (Path(text) / MANIFEST).is_file():
        return None
    return text
