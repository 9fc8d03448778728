"""The plan that options say, without a job file."""

import json
from dataclasses import dataclass
from pathlib import Path

from coordinator.cli.exits import CliError, ExitCode
from coordinator.jobfile import read_plan
from coordinator.problem import SpecError
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.limits import SizeError
from coordinator.schedule.plan import Plan, Schedule, make_plan

CUSTOM = "custom"
_OPTION_BY_SIZE = {
    "num_chunks": "--chunks",
    "num_microbatches": "--microbatches",
    "group_size": "--group-size",
    "warmup": "--warmup",
}
"""What a user of this command calls the size that a schedule cannot run."""
_DEFAULT_MICROBATCHES = 8
_MAX_CELLS = 2**20
"""Stages x chunks x microbatches that are still planned in two minutes."""


def refusal(error: SizeError) -> CliError:
    """Return what a user is told of a size that a schedule cannot run."""
    return CliError(ExitCode.INVALID, _OPTION_BY_SIZE[error.option] + str(error).removeprefix(error.option))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the options say of a plan; None where they say nothing."""

    schedule: str | None
    stages: int | None
    chunks: int | None
    microbatches: int | None
    group_size: int | None
    warmup: str | None
    file: Path | None

    @property
    def schedule_name(self) -> str | None:
        """The schedule; a plan's file needs no word that it is a custom one."""
        return CUSTOM if self.schedule is None and self.file is not None else self.schedule

    def settings(self) -> list[str]:
        """Return the options as overrides of a job file."""
        values = {
            "schedule.name": self.schedule_name,
            "parallel.pp": self.stages,
            "schedule.num_chunks": self.chunks,
            "schedule.num_microbatches": self.microbatches,
            "schedule.group_size": self.group_size,
            "schedule.warmup": None if self.warmup is None else _warmup(self.warmup),
            "schedule.file": None if self.file is None else str(self.file),
        }
        return [f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None]

    def counts(self) -> dict[str, int]:
        """Return the counts of the plan by their options.

        Raises:
            CliError: there is none of the workers, or one is out of range.
        """
        if self.stages is None:
            message = "there is nothing to plan; give a job file, or --stages P, or --file PLAN.csv"
            raise CliError(ExitCode.INVALID, message)
        counts = {
            "--stages": self.stages,
            "--chunks": 1 if self.chunks is None else self.chunks,
            "--microbatches": _DEFAULT_MICROBATCHES if self.microbatches is None else self.microbatches,
        }
        cells = 1
        for name, count in counts.items():
            if count < 1:
                raise CliError(ExitCode.INVALID, f"{name} is {count}, need at least 1")
            cells *= count
        if cells > _MAX_CELLS:
            message = f"{' x '.join(counts)} is {cells}, at most {_MAX_CELLS} are planned; choose fewer"
            raise CliError(ExitCode.INVALID, message)
        return counts

    def plan(self) -> Plan:
        """Return the plan.

        Raises:
            CliError: the options say none, or one that cannot be planned.
        """
        try:
            return _plan_of_file(self) if self.schedule_name == CUSTOM else _plan_of_shape(self)
        except SizeError as error:
            raise refusal(error) from None


def _plan_of_file(shape: Shape) -> Plan:
    if shape.file is None:
        raise CliError(ExitCode.INVALID, f"--schedule {CUSTOM} needs a plan; give it with --file")
    for name, value in (("--group-size", shape.group_size), ("--warmup", shape.warmup)):
        if value is not None:
            raise CliError(ExitCode.INVALID, f"{name} is given, but {CUSTOM} takes its order from the file")
    try:
        text = read_plan(shape.file)
    except SpecError as error:
        raise CliError(ExitCode.INVALID, f"--file {error.problems[0].message}") from None
    return make_custom_plan(
        text, num_workers=shape.stages, num_chunks=shape.chunks, num_microbatches=shape.microbatches
    )


def _plan_of_shape(shape: Shape) -> Plan:
    if shape.file is not None:
        message = f"--file holds a {CUSTOM} plan, but --schedule is {shape.schedule}; leave one of the two out"
        raise CliError(ExitCode.INVALID, message)
    counts = shape.counts()
    return make_plan(
        Schedule.ONE_F_ONE_B if shape.schedule is None else shape.schedule,
        num_workers=counts["--stages"],
        num_chunks=counts["--chunks"],
        num_microbatches=counts["--microbatches"],
        group_size=shape.group_size,
        warmup=None if shape.warmup is None else _warmup(shape.warmup),
    )


def _warmup(text: str) -> str | list[int]:
    """Return the numbers of a list such as ``3,2,1,0``; a single word is a name, for others to judge."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        if text.isalpha():
            return text
        message = f"--warmup is {text!r}, needs eager, or a number a stage such as 3,2,1,0"
        raise CliError(ExitCode.INVALID, message) from None
