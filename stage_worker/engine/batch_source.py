"""The border to the data: where the engine gets the rows of a step from."""

from typing import Protocol

from stage_worker.engine.commands import StepSetting
from stage_worker.models.microbatch import Microbatch


class DataError(RuntimeError):
    """Rows that a step needs cannot be had."""


class BatchSource(Protocol):
    """Where the engine gets rows from; reads ahead as far as it was told of steps."""

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        """Return one microbatch of the step; wait for it, but not for ever.

        Raises:
            DataError: it did not come in time, or the service refused.
        """
