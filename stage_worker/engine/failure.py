"""What the engine raises: the cause, and where it happened."""

from stage_worker.engine.commands import Command, Phase, StepSetting


class CommandOrderError(RuntimeError):
    """A command came before what it needs, twice, or to a worker that does not hold its stage."""


class NonFiniteError(ArithmeticError):
    """A loss or a gradient is infinite or no number; the weights were left as they were."""

    def __init__(self, message: str, *, stage: int, microbatch: int | None) -> None:
        super().__init__(message)
        self.stage = stage
        self.microbatch = microbatch


class CommandFailed(RuntimeError):
    """A command could not be obeyed; ``cause`` is what was raised, the rest says where.

    ``stage`` and ``microbatch`` are None where the command is about neither, ``step`` in an evaluation.
    """

    def __init__(self, cause: Exception, *, command: Command | None, setting: StepSetting) -> None:
        """Describe ``cause``, raised while obeying ``command``; None stands for the end of the step."""
        self.cause = cause
        self.step = setting.step if setting.phase is Phase.TRAIN else None
        self.stage, self.microbatch = _place(cause, command)
        doing = command.op.name.lower() if command is not None else "end of step"
        where = f"{'' if self.step is not None else 'evaluation '}step {setting.step}, {doing}"
        if self.stage is not None:
            where += f", stage {self.stage}"
        if self.microbatch is not None:
            where += f", microbatch {self.microbatch}"
        super().__init__(f"{where}: {type(cause).__name__}: {cause}")


def _place(cause: Exception, command: Command | None) -> tuple[int | None, int | None]:
    if isinstance(cause, NonFiniteError):
        return cause.stage, cause.microbatch
    if command is None or not (command.op.is_compute or command.op.is_transfer):
        return None, None
    return command.stage, command.microbatch
