"""The agents that attend: their streams, their slots, and what they are asked about models."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace

from takt.rpc.errors import UnreachableError
from takt.v1 import workers_pb2 as pb

from coordinator.facts import ModelFacts
from coordinator.known_models import KnownModels
from coordinator.membership import Membership, Slot, SlotState
from coordinator.problem import Problem, SpecError

LEASE_SECONDS = 10.0
"""An agent that is not heard of for so long is lost; it says that it lives once a second."""

Outbox = asyncio.Queue[pb.AttendResponse | None]
"""What an agent is sent; None ends its stream."""


class Agents:
    """All agents. Only for the thread of the event loop; ``membership`` may be read from any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.membership = Membership()
        self._clock = clock
        self._outboxes: dict[str, Outbox] = {}
        self._orders: dict[str, pb.AttendResponse] = {}
        """What each agent was told last of the work that it has; a stream may have lost it."""
        self._working: set[str] = set()
        """Agents that had an executor when they were heard of last."""
        self._questions: dict[str, asyncio.Future[pb.ModelInspected]] = {}
        self._asked_of: dict[str, str] = {}
        self._known = KnownModels()

    def join(self, hello: pb.AgentHello, *, job: str | None = None, worker: int | None = None) -> Outbox:
        """Take an agent on, or again; return what it is to be sent from now on.

        Args:
            hello: its offer.
            job: what its slot is busy with; free where absent.
            worker: its worker there; None where no run has one on the slot.

        Raises:
            SlotTakenError: another agent that lives offers the slot.
        """
        offer = Slot(
            agent=hello.agent,
            host=hello.host,
            number=hello.slot,
            device=hello.device,
            pid=hello.pid,
            metrics_address=hello.metrics_address,
            heard_at=self._clock(),
        )
        if job is not None:
            offer = replace(offer, state=SlotState.BUSY, job=job, worker=worker)
        self.membership = self.membership.joined(offer)
        self.hang_up(hello.agent)
        self._known.clear()
        outbox = self._outboxes[hello.agent] = asyncio.Queue()
        outbox.put_nowait(pb.AttendResponse(welcome=pb.AgentWelcome(lease_seconds=LEASE_SECONDS)))
        return outbox

    def heard(self, agent: str) -> None:
        """Renew an agent's lease."""
        self.membership = self.membership.heard(agent, self._clock())

    def assign(self, job: str, slots: Iterable[Slot]) -> None:
        """Give slots to a job; the order is that of its workers."""
        self.membership = self.membership.assigned(job, [slot.agent for slot in slots])

    def free(self, agent: str) -> None:
        """Take a slot back from its job."""
        self.work_ended(agent)
        self.membership = self.membership.freed(agent)

    def stopping(self, agent: str) -> None:
        """Note that an agent ends soon; it gets no new work."""
        self.membership = self.membership.stopping(agent)

    def order(self, agent: str) -> pb.AttendResponse | None:
        """Return the assignment or release that an agent was told last of the work that it has."""
        return self._orders.get(agent)

    def works(self, agent: str) -> bool:
        """Whether an agent had an executor when it was heard of last."""
        return agent in self._working

    def work_began(self, agent: str) -> None:
        """An agent has started its executor."""
        self._working.add(agent)

    def work_ended(self, agent: str) -> None:
        """An agent has no executor any more, or nobody wants to know of it."""
        self._working.discard(agent)
        self._orders.pop(agent, None)

    def is_attending(self, agent: str) -> bool:
        """Whether an agent has a stream."""
        return agent in self._outboxes

    def attends(self, agent: str, outbox: Outbox) -> bool:
        """Whether this is the present stream of the agent, not one that a later stream replaced."""
        return self._outboxes.get(agent) is outbox

    def leave(self, agent: str, *, lost: bool) -> None:
        """End an agent's stream and take its slot from the list, or keep it there as lost."""
        self.membership = self.membership.lost(agent) if lost else self.membership.left(agent)
        self.work_ended(agent)
        self.hang_up(agent)

    def lapsed(self) -> tuple[str, ...]:
        """Return the agents whose lease has run out, and forget slots that were lost long ago."""
        now = self._clock()
        self.membership = self.membership.without_forgotten(now)
        return self.membership.lapsed(now, lease_seconds=LEASE_SECONDS)

    def send(self, agent: str, message: pb.AttendResponse) -> None:
        """Send a message; an agent that has no stream gets it, where it is about work, with its next one."""
        if message.HasField("assign") or message.HasField("release"):
            self._orders[agent] = message
        outbox = self._outboxes.get(agent)
        if outbox is not None:
            outbox.put_nowait(message)

    def can_be_asked(self) -> bool:
        """Whether an agent is there that can inspect a model."""
        return self._asked_first() is not None

    async def model_facts(
        self, spec_json: str, *, parts: pb.PartsQuestion | None = None, limit_seconds: float
    ) -> ModelFacts:
        """Ask an agent about a job's model; a free one where there is one. With ``parts``, about its parts too.

        One that is built from a config is asked about once, until another agent joins.

        Raises:
            SpecError: the model section is wrong.
            UnreachableError: no agent is there, or it did not answer in time.
        """
        key = KnownModels.key_of(spec_json, parts)
        if (known := self._known.get(key)) is not None:
            return known
        slot = self._asked_first()
        if slot is None:
            raise UnreachableError("no stage worker is there to look at the model")
        request = uuid.uuid4().hex
        answer: asyncio.Future[pb.ModelInspected] = asyncio.get_running_loop().create_future()
        self._questions[request], self._asked_of[request] = answer, slot.agent
        question = pb.InspectModel(request=request, spec_json=spec_json, parts=parts)
        self.send(slot.agent, pb.AttendResponse(inspect_model=question))
        try:
            async with asyncio.timeout(limit_seconds):
                inspected = await answer
        except TimeoutError:
            where = f"slot {slot.number} of {slot.host}"
            raise UnreachableError(f"{where} did not tell about the model within {limit_seconds:g} s") from None
        finally:
            del self._questions[request], self._asked_of[request]
        if inspected.error:
            raise SpecError([Problem.told("model", inspected.error)])
        facts = ModelFacts.of(inspected.facts)
        self._known.add(key, facts)
        return facts

    def inspected(self, message: pb.ModelInspected) -> None:
        """Take an answer; one that came too late is dropped."""
        answer = self._questions.get(message.request)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def close(self) -> None:
        """End all streams."""
        for agent in list(self._outboxes):
            self.hang_up(agent)

    def _asked_first(self) -> Slot | None:
        live = (slot for slot in self.membership.slots if self.is_attending(slot.agent))
        return min(live, key=lambda slot: slot.state is not SlotState.FREE, default=None)

    def hang_up(self, agent: str) -> None:
        """End an agent's stream."""
        outbox = self._outboxes.pop(agent, None)
        if outbox is not None:
            outbox.put_nowait(None)
        for request, asked in self._asked_of.items():
            answer = self._questions[request]
            if asked == agent and not answer.done():
                answer.set_exception(UnreachableError("the stage worker that looked at the model is gone"))
