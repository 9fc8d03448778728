"""What of an agent's words reaches the run of its job, and what an agent hears that comes back."""

from typing import Any

import pytest
from takt.v1 import workers_pb2 as pb

from coordinator.agents import LEASE_SECONDS, Agents, Outbox
from coordinator.attendance import Attendance, NotYetError
from coordinator.events import AgentLost, Ended, EndKind, Event, Progressed, Started, StopAsked
from coordinator.membership import SlotState

WORK = pb.AgentWork(job="a", attempt=1, worker=3, pid=77, log="logs/worker-3.log")
ASSIGN = pb.AttendResponse(assign=pb.Assignment(job="a", attempt=1, worker=3))
RELEASE = pb.AttendResponse(release=pb.Release(job="a", attempt=1, grace_seconds=1.5))


class Run:
    """The first attempt of job ``a``; its worker 3 is on the slot of agent ``x``. Job ``soon`` has no run yet."""

    def __init__(self) -> None:
        self.job, self.attempt = "a", 1
        self.heard: list[Event] = []
        self.gone = False
        self.looked = 0

    def get(self, job: str) -> "Run | None":
        return self if job == "a" else None

    def on(self, agent: str) -> "Run | None":
        return self if agent == "x" and not self.gone else None

    def worker_on(self, agent: str) -> int | None:
        return 3 if agent == "x" else None

    def post(self, event: Event) -> None:
        self.heard.append(event)

    def holds_slots(self, job: str) -> bool:
        return job in ("a", "soon")

    def look(self) -> None:
        self.looked += 1


class World:
    """An attendance with the run, at a time that a test sets."""

    def __init__(self) -> None:
        self.now = 7.0
        self.run: Any = Run()
        self.agents = Agents(clock=lambda: self.now)
        self.attendance = Attendance(agents=self.agents, runs=self.run, queue=self.run)

    def join(self, agent: str = "x", **said: Any) -> Outbox:
        return self.attendance.joined(pb.AgentHello(agent=agent, host="h", slot=0, device="cpu", pid=1, **said))

    def assigned(self) -> Outbox:
        """Let agent ``x`` join and be told of its work."""
        outbox = self.join()
        slot = self.agents.membership.slot("x")
        assert slot is not None
        self.agents.assign("a", [slot] * 4)  # the last one counts: worker 3
        self.agents.send("x", ASSIGN)
        return outbox

    def working(self) -> Outbox:
        """Let it say besides that it has begun."""
        outbox = self.assigned()
        self.attendance.said("x", pb.AttendRequest(started=pb.ExecutorStarted(job="a", attempt=1, pid=77)))
        assert self.take_heard() == [Started(3, 77, "")]
        return outbox

    def cut(self, outbox: Outbox) -> None:
        """Break the stream."""
        self.attendance.gone("x", outbox, "its stream broke", lost=True)

    def take_heard(self) -> list[Event]:
        heard, self.run.heard = self.run.heard, []
        return list(heard)

    @property
    def state(self) -> tuple[SlotState, str, int | None]:
        slot = self.agents.membership.slots[0]
        return slot.state, slot.job, slot.worker


BUSY = (SlotState.BUSY, "a", 3)


def sent(outbox: Outbox) -> list[pb.AttendResponse]:
    """Return what an agent was sent after its welcome."""
    messages = [outbox.get_nowait() for _ in range(outbox.qsize())]
    assert messages[0] is not None
    assert messages[0].HasField("welcome")
    return [message for message in messages[1:] if message is not None]


@pytest.fixture
def world() -> World:
    return World()


def told(message: pb.AttendRequest, *, agent: str = "x") -> list[Event]:
    """Return what the run hears of an agent's message."""
    world = World()
    world.join(agent)
    world.attendance.said(agent, message)
    return world.take_heard()


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


def test_broken_stream_of_a_slot_at_work_costs_nothing_where_the_agent_comes_back_with_it(world: World) -> None:
    world.cut(world.working())
    assert (world.state, world.take_heard()) == (BUSY, [])
    world.now += LEASE_SECONDS
    world.attendance.expire()
    assert world.take_heard() == []
    again = world.join(work=WORK)
    assert world.take_heard() == [Started(3, 77, "logs/worker-3.log")]
    assert (world.state, sent(again)) == (BUSY, [])
    world.now += LEASE_SECONDS
    world.attendance.expire()
    assert world.take_heard() == []


def test_broken_stream_of_a_slot_at_work_is_lost_at_the_end_of_the_lease(world: World) -> None:
    world.cut(world.working())
    world.now += LEASE_SECONDS + 0.1
    world.attendance.expire()
    assert world.take_heard() == [AgentLost(3, "its stream broke and it was not back within 10 s")]
    assert world.state[0] is SlotState.LOST


def test_broken_stream_of_a_free_slot_is_lost_at_once(world: World) -> None:
    world.run.gone = True
    world.cut(world.join())
    assert world.state[0] is SlotState.LOST


def test_assignment_that_a_stream_lost_is_sent_again(world: World) -> None:
    world.cut(world.assigned())
    again = world.join()
    assert (sent(again), world.take_heard(), world.state) == ([ASSIGN], [], BUSY)


def test_assignment_that_was_obeyed_is_not_sent_again(world: World) -> None:
    world.cut(world.assigned())  # it has begun, but its word for it was lost
    assert sent(world.join(work=WORK)) == []
    assert world.take_heard() == [Started(3, 77, "logs/worker-3.log")]


def test_release_that_a_stream_lost_is_sent_again(world: World) -> None:
    world.cut(world.working())
    world.agents.send("x", RELEASE)
    assert sent(world.join(work=WORK)) == [RELEASE]


def test_end_that_a_stream_lost_is_told_once(world: World) -> None:
    world.cut(world.working())
    end = pb.ExecutorEnded(job="a", attempt=1, cause=pb.END_CAUSE_EXITED, exit_code=3)
    again = world.join(last_end=end)
    assert world.take_heard() == [Ended(3, EndKind.EXITED, exit_code=3)]
    assert (sent(again), world.state) == ([], BUSY)  # until the run ends
    world.run.gone = True
    world.cut(again)
    world.join(last_end=end)
    assert world.take_heard() == []


def test_agent_that_comes_back_without_its_executor_is_lost_to_the_run(world: World) -> None:
    world.cut(world.working())
    world.join(last_end=pb.ExecutorEnded(job="a", attempt=0))
    assert world.take_heard() == [AgentLost(3, "it came back without its executor")]


def test_agent_released_before_it_was_told_of_the_work_has_nothing_that_ends(world: World) -> None:
    world.cut(world.assigned())
    world.agents.send("x", RELEASE)
    assert sent(world.join()) == []
    assert world.take_heard() == [Ended(3, EndKind.RELEASED, message="it was released before it was started")]


@pytest.mark.parametrize(
    ("agent", "changes"),
    [("x", {"attempt": 2}), ("x", {"job": "over"}), ("x", {"worker": 2}), ("y", {})],
    ids=["attempt", "job", "worker", "agent"],
)
def test_work_that_nobody_carries_out_is_released_and_the_slot_is_busy_until_it_ends(
    agent: str, changes: dict[str, Any], world: World
) -> None:
    work = pb.AgentWork()
    work.CopyFrom(WORK)
    for name, value in changes.items():
        setattr(work, name, value)
    (message,) = sent(world.join(agent, work=work))
    assert message.release == pb.Release(job=work.job, attempt=work.attempt)
    assert world.state == (SlotState.BUSY, work.job, None)
    lost = [AgentLost(3, f"it works for attempt {work.attempt} of job {work.job}")] if agent == "x" else []
    assert world.take_heard() == lost
    world.attendance.said(agent, pb.AttendRequest(heartbeat=pb.Heartbeat(job=work.job)))
    assert world.state[0] is SlotState.BUSY
    world.attendance.said(agent, pb.AttendRequest(ended=pb.ExecutorEnded(job=work.job, attempt=work.attempt)))
    assert world.state == (SlotState.FREE, "", None)


def test_work_of_a_worker_that_was_given_up_is_released(world: World) -> None:
    world.working()
    world.run.gone = True
    assert [message.release.job for message in sent(world.join(work=WORK))] == ["a"]


@pytest.mark.parametrize("said", [{"work": pb.AgentWork(job="soon")}, {"last_end": pb.ExecutorEnded(job="soon")}])
def test_agent_of_a_run_that_is_about_to_begin_is_to_dial_again(said: dict[str, Any], world: World) -> None:
    with pytest.raises(NotYetError):
        world.join(**said)
    with pytest.raises(NotYetError):
        world.attendance.run_of(pb.ExecutorHello(job="soon", attempt=1))
    assert world.agents.membership.slots == ()


def test_agent_started_again_takes_the_slot_of_the_one_whose_stream_broke(world: World) -> None:
    world.cut(world.working())
    world.join("new")
    assert world.take_heard() == [AgentLost(3, "its stream broke and another agent took its slot")]
    assert [(slot.agent, slot.state) for slot in world.agents.membership.slots] == [("new", SlotState.FREE)]


def test_agent_told_to_stop_has_its_run_saved_and_gets_no_new_work(world: World) -> None:
    world.working()
    world.attendance.said("x", pb.AttendRequest(stopping=pb.AgentStopping()))
    (asked,) = world.take_heard()
    assert asked == StopAsked("the stage worker of slot 0 on h is being stopped", 20.0)
    world.agents.free("x")
    assert world.agents.membership.chosen(1) == ()
