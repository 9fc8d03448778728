"""Pages of jobs, against lists that are sorted and cut by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
from takt.v1 import jobs_pb2 as pb

from coordinator.listing import Listing, ListingError, Place
from coordinator.records import JobRecord, JobState, StateChange
from coordinator.store import Store

JOB = JobRecord(
    id="",
    name="demo",
    spec_json="{}",
    digest="d",
    owner="me",
    num_slots=1,
    state=JobState.QUEUED,
    reason="submitted",
    created=0.0,
)


def store_of(state_dir: Path, *jobs: tuple[str, float]) -> Store:
    store = Store.open(state_dir, owner="me")
    for job, created in jobs:
        store.add_job(replace(JOB, id=job, created=created))
    return store


def ids(store: Store, listing: Listing) -> list[str]:
    return [record.id for record in store.page(listing)[0]]


def test_page_the_newest_first_and_those_of_one_moment_the_last_one_first(tmp_path: Path) -> None:
    store = store_of(tmp_path, ("b", 2.0), ("a", 1.0), ("d", 3.0), ("c", 3.0))
    assert store.page(Listing()) == ([store.job(job) for job in ("c", "d", "b", "a")], None)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
def test_pages_give_every_job_once_though_others_come_and_change_meanwhile(limit: int, tmp_path: Path) -> None:
    # 0.1 + 0.2 is no number that a decimal of few digits gives back.
    store = store_of(tmp_path, *((f"j{number}", 0.1 + 0.2 + number // 3) for number in range(5)))
    seen: list[str] = []
    after: Place | None = None
    while True:
        records, after = store.page(Listing(limit=limit, after=after))
        seen += [record.id for record in records]
        assert len(records) == limit or after is None
        if after is None:
            break
        after = Place.parse(str(after))
        store.add_job(replace(JOB, id=f"new{len(seen)}", created=9.0))
        store.change_state(
            seen[-1], StateChange(state=JobState.FAILED, reason="gone", attempt=0, step=0, time=9.0)
        )  # fmt: skip
    assert seen == ["j4", "j3", "j2", "j1", "j0"]


def test_page_keeps_to_states_and_to_a_prefix_of_name_or_id(tmp_path: Path) -> None:
    store = store_of(tmp_path, ("a_1", 1.0), ("ab1", 2.0), ("A_2", 3.0))
    store.add_job(replace(JOB, id="z", name="a_n", created=4.0))
    for job, state in (("a_1", JobState.FAILED), ("z", JobState.RUNNING)):
        store.change_state(job, StateChange(state=state, reason="", attempt=1, step=0, time=5.0))
    assert ids(store, Listing(prefix="a_")) == ["z", "a_1"], "no wildcard, and case counts"
    assert ids(store, Listing(prefix="a")) == ["z", "ab1", "a_1"]
    assert ids(store, Listing(states=(JobState.QUEUED,))) == ["A_2", "ab1"]
    assert ids(store, Listing(states=(JobState.FAILED, JobState.RUNNING))) == ["z", "a_1"]
    assert ids(store, Listing(states=(JobState.FAILED,), prefix="z")) == []
    records, after = store.page(Listing(prefix="a", limit=2))
    assert [record.id for record in records] == ["z", "ab1"]
    assert ids(store, Listing(prefix="a", limit=2, after=after)) == ["a_1"]


def test_listing_of_a_request_has_a_thousand_jobs_at_most() -> None:
    request = pb.ListJobsRequest(states=["JOB_STATE_FAILED"], prefix="p", page_size=5000, page_token=str(Place(1.5, 2)))
    assert Listing.of(request) == Listing(states=(JobState.FAILED,), prefix="p", limit=1000, after=Place(1.5, 2))
    assert Listing.of(pb.ListJobsRequest()) == Listing(limit=1000)


@pytest.mark.parametrize("token", ["x", "1", "0x1p+0_", "_3", "0x1p+0_x", "0x1p+99999_1"])
def test_listing_of_a_token_that_nobody_gave_is_refused(token: str) -> None:
    with pytest.raises(ListingError, match="is none that a list of jobs has ended with"):
        Listing.of(pb.ListJobsRequest(page_token=token))


@pytest.mark.parametrize("state", [0, 99])
def test_listing_of_a_state_that_is_none_is_refused(state: int) -> None:
    request = pb.ListJobsRequest()
    request.states.append(state)  # type: ignore[arg-type]  # what another program may send
    with pytest.raises(ListingError, match=f"there is no state {state}"):
        Listing.of(request)
