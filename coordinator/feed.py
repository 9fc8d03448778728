"""Numbers one executor's commands and, where strict, lets one out at a time."""

from collections import deque

from takt.v1 import commands_pb2


class Feed:
    """The commands of one executor, in the order they are offered."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._next_seq = 1
        self._held: deque[commands_pb2.StepCommands] = deque()
        self._awaited_seq: int | None = None
        """Number of the command that is out and not done."""

    def offer(self, commands: commands_pb2.StepCommands) -> list[commands_pb2.StepCommands]:
        """Take the next commands; return what is to be sent now."""
        if not self._strict:
            commands.first_seq = self._next_seq
            self._next_seq += len(commands.commands)
            return [commands]
        self._held.extend(_singles(commands))
        return self._let_out()

    def done(self, seq: int) -> list[commands_pb2.StepCommands]:
        """Note that a command is done; return what is to be sent now."""
        if seq == self._awaited_seq:
            self._awaited_seq = None
        return self._let_out()

    def _let_out(self) -> list[commands_pb2.StepCommands]:
        if self._awaited_seq is not None or not self._held:
            return []
        message = self._held.popleft()
        message.first_seq = self._awaited_seq = self._next_seq
        self._next_seq += 1
        return [message]


def _singles(commands: commands_pb2.StepCommands) -> list[commands_pb2.StepCommands]:
    """Cut a list into messages of one command each, every one to be acknowledged."""
    frame = commands_pb2.StepCommands()
    frame.CopyFrom(commands)
    frame.ClearField("commands")
    frame.ends_step = False
    frame.acknowledge = True
    singles = []
    for command in commands.commands:
        single = commands_pb2.StepCommands()
        single.CopyFrom(frame)
        single.commands.append(command)
        singles.append(single)
    singles[-1].ends_step = commands.ends_step
    return singles
