"""Which commands an executor still has to do: fencing by (job, attempt, seq)."""

from takt.v1 import commands_pb2 as pb


class FenceError(RuntimeError):
    """Commands that cannot belong to this executor's attempt."""


class Fence:
    """Lets every command of one attempt through exactly once, in order."""

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._next_seq = 1

    def admit(self, message: pb.StepCommands) -> pb.StepCommands | None:
        """Return what is new in a message, None where nothing is.

        A message of a lower attempt and commands that came before are dropped.

        Raises:
            FenceError: it is of another job or of a later attempt, or commands are missing before it.
        """
        if message.job != self._job or message.attempt > self._attempt:
            raise FenceError(
                f"commands are for job {message.job} attempt {message.attempt}, "
                f"this executor works for job {self._job} attempt {self._attempt}"
            )
        if message.attempt < self._attempt:
            return None
        if message.first_seq > self._next_seq:
            raise FenceError(f"commands {self._next_seq} to {message.first_seq - 1} are missing")
        known = self._next_seq - message.first_seq
        if known and known >= len(message.commands):
            return None
        self._next_seq = message.first_seq + len(message.commands)
        if not known:
            return message
        rest = pb.StepCommands()
        rest.CopyFrom(message)
        del rest.commands[:known]
        rest.first_seq += known
        return rest
