"""Which jobs are listed, and where a page of them ends."""

from dataclasses import dataclass

from takt.rpc.errors import TaktError
from takt.v1 import jobs_pb2 as pb

from coordinator.records import JobState

PAGE_SIZE = 1000
"""Jobs on a page at most."""


class ListingError(TaktError):
    """A list was asked for that cannot be given."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands in the order of their submission; it stays where it is, whatever comes after it."""

    created: float
    """In Unix seconds."""
    number: int
    """Of the store's, for jobs of one moment."""

    @classmethod
    def parse(cls, token: str) -> "Place":
        """Return the place that ``str`` made the token of.

        Raises:
            ListingError: it is no such token.
        """
        created, _, number = token.partition("_")
        try:
            return cls(float.fromhex(created), int(number))
        except (ValueError, OverflowError):
            raise ListingError(f"page token {token!r} is none that a list of jobs has ended with") from None

    def __str__(self) -> str:
        return f"{self.created.hex()}_{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One page of jobs, the newest first."""

    states: tuple[JobState, ...] = ()
    """Only jobs in one of these; all where there is none."""
    prefix: str = ""
    """Only jobs whose name or id begins so."""
    limit: int = PAGE_SIZE
    after: Place | None = None
    """Place of the last job of the page before."""

    @classmethod
    def of(cls, request: pb.ListJobsRequest) -> "Listing":
        """Decode which page is wanted; one of more than `PAGE_SIZE` jobs has so many.

        Raises:
            ListingError: there is no such state, or no such page.
        """
        return cls(
            states=tuple(_state(number) for number in request.states),
            prefix=request.prefix,
            limit=min(request.page_size or PAGE_SIZE, PAGE_SIZE),
            after=Place.parse(request.page_token) if request.page_token else None,
        )


def _state(number: pb.JobState) -> JobState:
    try:
        return JobState(pb.JobState.Name(number).removeprefix("JOB_STATE_"))
    except ValueError:
        raise ListingError(f"there is no state {number} that a job can be in") from None
