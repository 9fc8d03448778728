"""An executor whose answers are made up and whose tie to the coordinator is the real one."""

import asyncio
from pathlib import Path
from typing import Any

from coordinator_fakes import FakeExecutor
from takt.rpc.client import channel
from takt.v1 import commands_pb2, data_pb2
from takt.v1 import workers_pb2 as pb

from stage_worker.clock import ClockOffset
from stage_worker.decode import encode_phase
from stage_worker.engine.commands import Op, StepCommands
from stage_worker.executor_link import CoordinatorLink

LIMIT_SECONDS = 10.0


class LinkedExecutor(FakeExecutor):
    """Says and hears everything through a ``CoordinatorLink``, in a thread of its own."""

    def __init__(self, address: str, state_dir: Path, place: pb.Assignment, *rest: Any) -> None:
        super().__init__(address, state_dir, place, *rest)
        hello = pb.ExecutorHello(job=place.job, attempt=place.attempt, worker=place.worker, pid=1000 + place.worker)
        self._link = CoordinatorLink(channel(address), hello, clock=ClockOffset("test"), limit_seconds=LIMIT_SECONDS)
        self.worker = place.worker
        self.done: list[tuple[int, Op]] = []
        """Number and kind of each command, as they were obeyed."""

    async def run(self) -> tuple["pb.EndCause", int, int]:
        return await asyncio.to_thread(self._live)

    def _say(self, **message: Any) -> None:
        self._link.say(pb.ExecuteRequest(**message))

    def _live(self) -> tuple["pb.EndCause", int, int]:
        if self._place.worker == 0:
            self._say(store_opened=pb.StoreOpened(address="127.0.0.1:1"))
        assert self._link.rendezvous() == "127.0.0.1:1"
        self._say(ready=pb.ExecutorReady(parameters=7, peak_bytes=70))
        end = None
        while end is None:
            commands = self._link.commands()
            self.done += [(seq, command.op) for seq, command in enumerate(commands.commands, commands.first_seq)]
            end = asyncio.run(self._obey(_encoded(commands)))
        self._link.close()
        return end


def _encoded(commands: StepCommands) -> commands_pb2.StepCommands:
    """Return what of commands decides the made-up answer."""
    setting = commands.setting
    ops = {Op.SAVE: commands_pb2.OP_SAVE, Op.STOP: commands_pb2.OP_STOP}
    return commands_pb2.StepCommands(
        phase=encode_phase(setting.phase),
        split=setting.split,
        step=setting.step,
        after=setting.after,
        first_seq=commands.first_seq,
        commands=[commands_pb2.Command(op=ops.get(c.op, commands_pb2.OP_FORWARD)) for c in commands.commands],
        microbatches=[data_pb2.MicrobatchShape(rows=s.rows, width=s.width) for s in setting.microbatches],
        ends_step=commands.ends_step,
        acknowledge=commands.acknowledge,
    )
