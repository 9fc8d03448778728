"""What of an agent's words reaches the run of its job."""

from typing import Any

import pytest
from takt.v1 import workers_pb2 as pb

from coordinator.agents import Agents
from coordinator.attendance import Attendance
from coordinator.events import Ended, EndKind, Event, Progressed


class Run:
    """The first attempt of job ``a``; its worker 3 is on the slot of agent ``x``."""

    def __init__(self) -> None:
        self.attempt = 1
        self.heard: list[Event] = []

    def get(self, job: str) -> "Run | None":
        return self if job == "a" else None

    def worker_on(self, agent: str) -> int | None:
        return 3 if agent == "x" else None

    def post(self, event: Event) -> None:
        self.heard.append(event)

    def holds_slots(self, job: str) -> bool:
        return job == "a"


def told(message: pb.AttendRequest, *, agent: str = "x") -> list[Event]:
    """Return what the run hears of an agent's message."""
    run: Any = Run()
    agents = Agents(clock=lambda: 7.0)
    agents.join(pb.AgentHello(agent=agent, host="h", slot=0, device="cpu", pid=1))
    Attendance(agents=agents, runs=run, queue=run).said(agent, message)
    heard: list[Event] = run.heard
    return heard


def test_heartbeat_of_an_executor_that_finishes_commands_is_progress() -> None:
    assert told(pb.AttendRequest(heartbeat=pb.Heartbeat(job="a", idle_seconds=2.5))) == [Progressed(3, 2.5)]


@pytest.mark.parametrize(
    ("agent", "heartbeat"),
    [
        ("x", pb.Heartbeat(job="a")),
        ("x", pb.Heartbeat(job="over", idle_seconds=2.5)),
        ("y", pb.Heartbeat(job="a", idle_seconds=2.5)),
    ],
    ids=["no executor yet", "another job", "no slot of this job"],
)
def test_heartbeat_without_an_executor_of_the_run_is_no_progress(agent: str, heartbeat: pb.Heartbeat) -> None:
    assert told(pb.AttendRequest(heartbeat=heartbeat), agent=agent) == []


@pytest.mark.parametrize("stage", [None, 0, 3])
def test_end_of_an_executor_tells_the_stage_that_it_computed_for(stage: int | None) -> None:
    ended = pb.ExecutorEnded(job="a", attempt=1, cause=pb.END_CAUSE_SIGNALLED, signal=9, stage=stage)
    assert told(pb.AttendRequest(ended=ended)) == [Ended(3, EndKind.SIGNALLED, signal=9, stage=stage)]
