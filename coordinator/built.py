"""What of the job file this version can run. Building more of it deletes from this table."""

import json
from collections.abc import Iterator, Mapping

from coordinator.choices import ScheduleName
from coordinator.problem import Problem
from coordinator.schedule.limits import Schedule
from coordinator.sections import JobSpec

BUILT: Mapping[str, tuple[object, ...]] = {
    "parallel.tp": (1,),
    "parallel.zero_stage": (0,),
    "schedule.name": (*map(ScheduleName, Schedule), ScheduleName.CUSTOM, ScheduleName.AUTO),
    "checkpoint.snapshot_steps": (None,),
}
"""The values that are built of each key whose other values are not; keys without an entry are built whole."""


def not_built(spec: JobSpec) -> Iterator[Problem]:
    """Yield what ``spec`` asks for that this version has not built."""
    document = spec.model_dump(by_alias=True)
    for key, values in BUILT.items():
        section, _, name = key.partition(".")
        value = document[section][name]
        if value not in values:
            built = ", ".join("null" if each is None else str(each) for each in values)
            yield Problem(key, f"is {json.dumps(value)}, which this version has not built; built: {built}")
