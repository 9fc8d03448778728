"""What a worker did since its last report, as spans of a report."""

from collections.abc import Iterable, Iterator, Sequence

from takt.v1 import commands_pb2 as pb

from stage_worker.engine.exchange import Transfer
from stage_worker.engine.ledger import BUSY_OPS, IDLE_REASONS, Activity, Span
from stage_worker.engine.transport import TransferKind

SHORTEST_OTHER_SECONDS = 1e-4
"""What lies between two actions and is shorter is left out: it is in the sums of a report."""

_NAMES = {**BUSY_OPS, **IDLE_REASONS}
_KINDS = {TransferKind.ACTIVATION: "activation", TransferKind.GRADIENT: "gradient"}

Read = tuple[float, float]
"""When rows of a step began to be read, and when they were here."""


def encode_spans(
    done: Iterable[Span], *, transfers: Sequence[Transfer], reads: Sequence[Read], num_most: int
) -> list[pb.Span]:
    """Return all spans by when they began, of more than ``num_most`` the last ones."""
    spans = [*_computed(done), *map(_transferred, transfers), *map(_read, reads)]
    return sorted(spans, key=lambda span: span.start)[-num_most:]


def _computed(done: Iterable[Span]) -> Iterator[pb.Span]:
    for span in done:
        shortest = SHORTEST_OTHER_SECONDS if span.activity is Activity.OTHER else 0.0
        if span.end - span.start <= shortest:
            continue
        stage, microbatch = span.about or (None, None)
        yield pb.Span(
            name=_NAMES[span.activity],
            track=pb.TRACK_COMPUTE,
            start=span.start,
            end=span.end,
            stage=stage,
            microbatch=microbatch,
            embeddings=span.embeddings,
            layers=span.layers,
            head=span.head,
        )


def _transferred(transfer: Transfer) -> pb.Span:
    message = transfer.message
    return pb.Span(
        name=_KINDS[message.kind],
        track=pb.TRACK_SEND if transfer.is_sent else pb.TRACK_RECEIVE,
        start=transfer.start,
        end=transfer.end,
        stage=message.boundary + (message.kind is TransferKind.GRADIENT),
        microbatch=message.microbatch,
        peer=transfer.peer,
        bytes=transfer.num_bytes,
    )


def _read(read: Read) -> pb.Span:
    start, end = read
    return pb.Span(name="read", track=pb.TRACK_DATA, start=start, end=end)
