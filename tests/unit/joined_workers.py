"""All workers of a case in one process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from benchmarks.local_case import LocalCase, LocalStep
from benchmarks.local_run import LocalResult, LocalWorker, load_part
from stage_worker.comm_place import Place
from stage_worker.models.loaded import LoadedModel
from tests.unit.joined_transport import JoinedTransport, Wire, take_turns
from tests.unit.tiny_bert import VALUES

Tamper = Callable[[Place, LoadedModel], None]
"""Changes what one worker holds, once its engine has it."""


def tiny_case(*, lengths: Sequence[Sequence[int]] = ((5, 3, 7, 4, 6, 2, 3, 5),), **values: object) -> LocalCase:
    """Return a case of a tiny BERT; ``lengths`` has those of the rows of each step, ``model`` what differs in it."""
    model = VALUES | values.pop("model", {})  # type: ignore[operator]
    steps = tuple(LocalStep(tuple(rows)) for rows in lengths)
    return LocalCase(**({"learning_rate": 0.01, "num_microbatches": 2, "steps": steps} | values), model=model)  # type: ignore[arg-type]


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
    wire = Wire()
    outcomes = []
    for number in range(case.num_workers):
        place = Place(worker=number, pp=case.pp, dp=case.dp)
        outcomes.append(Outcome(place, load(case, place), JoinedTransport(wire, place)))

    def work(outcome: Outcome, worker: LocalWorker) -> None:
        outcome.result = worker.run()

    calls = []
    for outcome in outcomes:
        worker = LocalWorker(case, outcome.place, outcome.model, outcome.transport)
        if tamper is not None:
            tamper(outcome.place, outcome.model)
        calls.append(partial(work, outcome, worker))
    for outcome, error in zip(outcomes, take_turns(wire, calls), strict=True):
        outcome.error = error
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
