"""Numbers one executor's commands, keeps them until they are done and, where strict, lets one out at a time."""

from collections import deque

from takt.v1 import commands_pb2


class Feed:
    """The commands of one executor, in the order they are offered."""

    def __init__(self, *, strict: bool, num_before: int = 0) -> None:
        """Begin behind ``num_before`` commands, which the executor has or has done."""
        self._strict = strict
        self._next_seq = num_before + 1
        self._held: deque[commands_pb2.StepCommands] = deque()
        self._out: deque[commands_pb2.StepCommands] = deque()
        """What was let out and is not known to be done."""
        self._done_seq = 0

    def offer(self, commands: commands_pb2.StepCommands) -> list[commands_pb2.StepCommands]:
        """Take the next commands; return what is to be sent now."""
        for message in _singles(commands) if self._strict else [commands]:
            message.first_seq = self._next_seq
            self._next_seq += len(message.commands)
            self._held.append(message)
        return self._let_out()

    def done(self, seq: int) -> list[commands_pb2.StepCommands]:
        """Note that all commands up to a number are done; return what is to be sent now."""
        self._done_seq = max(self._done_seq, seq)
        while self._out and _last_seq(self._out[0]) <= self._done_seq:
            self._out.popleft()
        return self._let_out()

    def resume(self, done_seq: int) -> list[commands_pb2.StepCommands]:
        """The executor has a new stream and has done all up to a number; return what is to be sent, again or now."""
        self.done(done_seq)
        return list(self._out)

    def _let_out(self) -> list[commands_pb2.StepCommands]:
        let_out: list[commands_pb2.StepCommands] = []
        while self._held and not (self._strict and self._out):
            message = self._held.popleft()
            if _last_seq(message) > self._done_seq:
                let_out.append(message)
                self._out.append(message)
        return let_out


def _last_seq(commands: commands_pb2.StepCommands) -> int:
    return commands.first_seq + len(commands.commands) - 1


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
