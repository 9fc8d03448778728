"""What the executors of a run say: their streams, and what of it becomes an event."""

from collections.abc import Callable, Sequence

from takt.v1 import workers_pb2 as pb

from coordinator.decode import KINDS, faulted_of, ready_of, reported_of, rows_of, saved_of, step_times_of
from coordinator.events import Connected, Disconnected, Event, Faulted, ItemKind, Progressed, StoreOpened
from coordinator.receipts import Receipts, subject_of
from coordinator.results import Results
from coordinator.run_state import Outstanding, Place
from coordinator.scoring import EvaluationError
from coordinator.start import Carried
from coordinator.streams import Outbox, Streams
from coordinator.tracing import Tracing
from coordinator.workers import Figures


class Hearing:
    """The incoming side of one run. Only for the thread of the event loop."""

    def __init__(
        self,
        *,
        places: Sequence[Place],
        streams: Streams,
        receipts: Receipts,
        figures: Figures,
        tracing: Tracing,
        results: Results,
        carried: Carried | None,
        post: Callable[[Event], None],
        outstanding: Callable[[], Sequence[Outstanding]],
    ) -> None:
        """Prepare to hear.

        Args:
            places: of the workers.
            streams: to them.
            receipts: of what they said.
            figures: of how they get on.
            tracing: of what they did and when.
            results: of their evaluations.
            carried: how far the run had come where another coordinator began it.
            post: told of every event.
            outstanding: tells what was issued and is not committed.
        """
        self._carried = carried
        self._places = places
        self._streams = streams
        self._receipts = receipts
        self._figures = figures
        self._tracing = tracing
        self._results = results
        self._post = post
        self._outstanding = outstanding

    def connect(self, hello: pb.ExecutorHello) -> Outbox:
        """An executor takes up its place; return what it is to be sent.

        Raises:
            StreamTakenError: the place is taken.
        """
        outbox = self._streams.open(hello.worker, pid=hello.pid, done_seq=hello.done_seq)
        self._streams.note_time(hello.worker, hello.sent)
        self._post(Connected(hello.worker, hello.pid))
        return outbox

    def disconnected(self, worker: int, outbox: Outbox) -> None:
        """A stream of an executor has ended; one that a later stream replaced is of no interest."""
        if self._streams.ended(worker, outbox):
            self._post(Disconnected(worker))

    def told(self, worker: int, message: pb.ExecuteRequest) -> None:
        """An executor said something; what it says again is dropped."""
        self._figures.heard(worker)
        is_known = self._is_known(message)
        subject = None if is_known else subject_of(message, self._outstanding())
        if not self._receipts.note(worker, message.number, subject) or is_known:
            return
        match message.WhichOneof("message"):
            case "store_opened":
                self._post(StoreOpened(worker, message.store_opened.address))
            case "ready":
                self._post(ready_of(worker, message.ready))
            case "done":
                self._streams.done(worker, message.done.seq)
                self._post(Progressed(worker))
            case "step":
                reported = reported_of(worker, message.step)
                self._figures.add(reported.result)
                self._streams.done(worker, message.step.last_seq)
                self._streams.note_time(worker, message.step.sent)
                if reported.kind is ItemKind.TRAIN:
                    self._tracing.add(worker, step_times_of(message.step))
                self._post(reported)
            case "rows":
                self._take_rows(worker, message.rows)
            case "saved":
                self._post(saved_of(worker, message.saved))
            case "failure":
                stages, log = self._places[worker].stages, f"logs/worker-{worker}.log"
                self._post(faulted_of(worker, message.failure, stages=stages, log=log))

    def _is_known(self, message: pb.ExecuteRequest) -> bool:
        """Whether another coordinator heard a message, and has written down all that it is about."""
        match message.WhichOneof("message"):
            case "step":
                kind, after = KINDS.get(message.step.phase), message.step.after
            case "rows":
                kind, after = ItemKind.EVALUATE, message.rows.after
            case "saved":
                kind, after = ItemKind.SAVE, message.saved.step
            case _:
                return False
        if self._carried is None or after > self._carried.step:
            return False
        return not any((entry.item.kind, entry.item.after) == (kind, after) for entry in self._outstanding())

    def _take_rows(self, worker: int, message: pb.EvaluationRows) -> None:
        try:
            self._results.add_rows(message.split, rows_of(message))
            self._post(Progressed(worker))
        except EvaluationError as error:
            self._post(Faulted.met("coordinator", error))
