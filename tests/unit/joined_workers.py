"""All workers of a case in one process: threads that take turns, and what passes between them in memory."""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.local_case import LocalCase, LocalStep
from benchmarks.local_run import LocalResult, LocalWorker, load_part
from stage_worker.comm_place import Place
from stage_worker.engine.transport import Message, PeerLostError
from stage_worker.models.loaded import LoadedModel
from tests.unit.tiny_bert import VALUES

Tamper = Callable[[Place, LoadedModel], None]
"""Changes what one worker holds, once its engine has it."""


def tiny_case(*, lengths: Sequence[Sequence[int]] = ((5, 3, 7, 4, 6, 2, 3, 5),), **values: object) -> LocalCase:
    """Return a case of a tiny BERT; ``lengths`` has those of the rows of each step, ``model`` what differs in it."""
    model = VALUES | values.pop("model", {})  # type: ignore[operator]
    steps = tuple(LocalStep(tuple(rows)) for rows in lengths)
    return LocalCase(**({"learning_rate": 0.01, "num_microbatches": 2, "steps": steps} | values), model=model)  # type: ignore[arg-type]


@dataclass
class Wire:
    """What the workers share. One of them has the turn, until it waits or ends."""

    turn: threading.Condition = field(default_factory=threading.Condition)
    messages: dict[tuple[int, int, Message], torch.Tensor] = field(default_factory=dict)
    """By sender, receiver and what was announced."""
    parts: defaultdict[tuple[object, ...], dict[int, torch.Tensor]] = field(default_factory=lambda: defaultdict(dict))
    """Addends of each sum by worker."""
    running: int = 0
    """Workers that did not end."""
    waiting: list[Callable[[], bool]] = field(default_factory=list)
    """What those that gave their turn away wait for."""
    stuck: bool = False
    """Whether what they wait for will never be."""

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Give the turn away until ``is_ready``; called by who has it."""
        self.waiting.append(is_ready)
        self.look()
        self.turn.wait_for(lambda: self.stuck or is_ready())
        self.waiting.remove(is_ready)
        if not is_ready():
            raise PeerLostError("what this worker waits for will never come")

    def end(self) -> None:
        """Let the others go on without the worker that has the turn."""
        self.running -= 1
        self.look()

    def look(self) -> None:
        """Wake who can go on; see whether nobody can."""
        self.stuck = len(self.waiting) == self.running and not any(is_ready() for is_ready in self.waiting)
        self.turn.notify_all()


@dataclass
class JoinedTransport:
    """One worker's end of the wire."""

    wire: Wire
    place: Place
    sent: list[tuple[Message, int, int]] = field(default_factory=list)
    """What was announced, the receiver, the bytes."""
    sums: int = 0
    """Sums that it took part in."""

    def send(self, tensor: torch.Tensor, message: Message, *, to_worker: int) -> None:
        """Lay a copy on the wire."""
        key = (self.place.worker, to_worker, message)
        assert key not in self.wire.messages, f"{message} was sent twice"
        assert (tuple(tensor.shape), tensor.dtype) == (message.shape, message.dtype)
        self.wire.messages[key] = tensor.detach().clone()
        self.sent.append((message, to_worker, tensor.nbytes))

    def receive(self, message: Message, *, from_worker: int) -> "JoinedReceive":
        """Post a receive."""
        return JoinedReceive(self.wire, (from_worker, self.place.worker, message))

    def flush(self) -> None:
        """Do nothing: what was sent is on the wire."""

    def add_over_replicas(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add in dp rank order."""
        return self._add(tensor, self.place.twins)

    def add_over_stages(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add over the workers of this replica."""
        return self._add(tensor, self.place.replica)

    def close(self) -> None:
        """Do nothing."""

    def _add(self, tensor: torch.Tensor, workers: tuple[int, ...]) -> torch.Tensor:
        self.sums += 1
        parts = self.wire.parts[workers, self.sums]
        parts[self.place.worker] = tensor.detach().clone()
        self.wire.wait_until(lambda: len(parts) == len(workers))
        total = torch.zeros_like(tensor)
        for worker in workers:
            total += parts[worker]
        return total


@dataclass
class JoinedReceive:
    """A posted receive."""

    wire: Wire
    key: tuple[int, int, Message]

    def wait(self) -> torch.Tensor:
        """Take it off the wire."""
        self.wire.wait_until(lambda: self.key in self.wire.messages)
        return self.wire.messages.pop(self.key)


@dataclass
class Outcome:
    """What became of one worker."""

    place: Place
    model: LoadedModel
    transport: JoinedTransport
    result: LocalResult = field(default_factory=LocalResult)
    """Empty where the worker failed."""
    error: Exception | None = None

    def weights(self) -> dict[str, torch.Tensor]:
        """Return all masters that are here by name."""
        return {name: master.detach() for name, master in self.model.held.items()}


def run_joined(
    case: LocalCase,
    *,
    tamper: Tamper | None = None,
    load: Callable[[LocalCase, Place], LoadedModel] = load_part,
) -> list[Outcome]:
    """Run all workers of a case; return what became of them, by worker."""
    wire = Wire(running=case.num_workers)
    outcomes = []
    for worker in range(case.num_workers):
        place = Place(worker=worker, pp=case.pp, dp=case.dp)
        outcomes.append(Outcome(place, load(case, place), JoinedTransport(wire, place)))

    def work(outcome: Outcome, worker: LocalWorker) -> None:
        with wire.turn:
            try:
                outcome.result = worker.run()
            except Exception as error:
                outcome.error = error
            wire.end()

    threads = []
    for outcome in outcomes:
        runner = LocalWorker(case, outcome.place, outcome.model, outcome.transport)
        if tamper is not None:
            tamper(outcome.place, outcome.model)
        threads.append(threading.Thread(target=work, args=(outcome, runner)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wire.messages or any(outcome.error for outcome in outcomes), "something was sent that nobody received"
    return outcomes


def merged(outcomes: Sequence[Outcome], prefix: str) -> dict[str, torch.Tensor]:
    """Return what the workers of the first replica recorded under ``prefix``; equal where several have one."""
    found: dict[str, torch.Tensor] = {}
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        if outcome.place.dp_rank == 0:
            for name, tensor in outcome.result.tensors.items():
                if name.startswith(prefix):
                    assert torch.equal(found.setdefault(name, tensor), tensor), name
    return found


def differing(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> list[str]:
    """Return the names whose bits differ; both must have the same names."""
    assert found.keys() == expected.keys()
    return [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)]
