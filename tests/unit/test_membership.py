import pytest

from coordinator.membership import Demand, Membership, Slot, SlotState, SlotTakenError


def slot(agent: str, host: str = "h", number: int = 0, *, heard_at: float = 0.0) -> Slot:
    return Slot(agent=agent, host=host, number=number, device="cpu", pid=1, metrics_address="h:1", heard_at=heard_at)


def members(count: int) -> Membership:
    membership = Membership()
    for number in reversed(range(count)):
        membership = membership.joined(slot(f"a{number}", number=number))
    return membership


def test_joined_any_order_sorts_by_host_and_number() -> None:
    membership = Membership().joined(slot("x", "b", 0)).joined(slot("y", "a", 10)).joined(slot("z", "a", 9))
    assert [s.key for s in membership.slots] == [("a", 9), ("a", 10), ("b", 0)]


def test_joined_slot_of_a_living_agent_is_refused_naming_it() -> None:
    with pytest.raises(SlotTakenError, match=r"slot 0 of h is offered by another agent \(pid 1\)"):
        members(1).joined(slot("other"))


def test_joined_slot_of_a_lost_agent_replaces_it() -> None:
    membership = members(1).lost("a0").joined(slot("other"))
    assert [(s.agent, s.state) for s in membership.slots] == [("other", SlotState.FREE)]


def test_joined_same_agent_again_is_free_again() -> None:
    membership = members(1).assigned("job", ["a0"]).joined(slot("a0"))
    assert [(s.agent, s.state, s.job) for s in membership.slots] == [("a0", SlotState.FREE, "")]


def test_lapsed_only_agents_past_the_lease() -> None:
    membership = Membership().joined(slot("old", number=0)).joined(slot("new", number=1)).heard("new", 5.0)
    assert membership.lapsed(10.0, lease_seconds=10) == ()
    assert membership.lapsed(10.1, lease_seconds=10) == ("old",)
    assert membership.lost("old").lapsed(10.1, lease_seconds=10) == ()


def test_without_forgotten_keeps_lost_slots_for_ten_minutes() -> None:
    membership = members(2).lost("a0")
    assert len(membership.without_forgotten(600.0).slots) == 2
    assert [s.agent for s in membership.without_forgotten(600.1).slots] == ["a1"]


def test_assigned_slots_are_listed_by_worker_and_freed() -> None:
    membership = members(3).assigned("job", ["a2", "a0"])
    assert {s.agent: s.worker for s in membership.slots if s.job == "job"} == {"a2": 0, "a0": 1}
    assert [s.agent for s in membership.chosen(5)] == ["a1"]
    assert [s.agent for s in membership.freed("a0").chosen(5)] == ["a0", "a1"]


def test_freed_lost_slot_stays_lost() -> None:
    membership = members(1).assigned("job", ["a0"]).lost("a0").freed("a0")
    assert membership.slots[0].state is SlotState.LOST


def test_admit_first_job_fits_gets_its_slots_and_the_next_waits_its_turn() -> None:
    found = members(2).admit([Demand("first", 2), Demand("second", 1)])
    assert found.admitted == "first"
    assert [(w.job, w.reason) for w in found.waiting] == [("second", "waits behind job first, which goes first")]


def test_admit_job_that_needs_busy_slots_blocks_smaller_ones_behind_it() -> None:
    found = members(2).assigned("running", ["a0"]).admit([Demand("large", 2), Demand("small", 1)])
    assert found.admitted is None
    assert [(w.job, w.missing_slots, w.reason) for w in found.waiting] == [
        ("large", 1, "needs 2 slots, 1 of 2 are free, 1 missing; waits for other jobs to end"),
        ("small", 0, "waits behind job large, which goes first"),
    ]


def test_admit_job_larger_than_everything_is_passed() -> None:
    found = members(1).admit([Demand("huge", 4), Demand("small", 1)])
    assert found.admitted == "small"
    assert [(w.job, w.missing_slots, w.reason) for w in found.waiting] == [
        ("huge", 3, "needs 4 slots, 1 of 1 are free, 3 missing; start 3 more stage workers")
    ]


def test_admit_lost_slots_do_not_count() -> None:
    found = members(2).lost("a1").admit([Demand("job", 2)])
    assert (found.admitted, found.waiting[0].missing_slots) == (None, 1)
