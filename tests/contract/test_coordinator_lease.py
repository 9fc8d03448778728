"""One coordinator per folder, whatever becomes of its process."""

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from coordinator_process import READY_SECONDS, Process, coordinator, refused, spawn
from coordinator_rig import rig, spec_json
from takt.rpc.lifecycle import parse_announcement
from takt.v1 import jobs_pb2

from coordinator.ownership import SILENCE_SECONDS
from coordinator.records import JobRecord
from coordinator.store import Store


def jobs_of(state_dir: Path) -> list[JobRecord]:
    with closing(Store.open_read_only(state_dir)) as store:
        return store.jobs()


async def stop(process: Process, state_dir: Path) -> None:
    """Have a process stand still, but not while it holds the store's write lock."""
    while True:
        process.child.send_signal(signal.SIGSTOP)
        try:
            with closing(sqlite3.connect(state_dir / "takt.db", timeout=0.5, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute("ROLLBACK")
        except sqlite3.OperationalError:
            process.child.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.timeout(90)
async def test_lease_of_a_process_that_stands_still_is_taken_and_it_commits_nothing_when_it_wakes_up(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as first:
        await first.submit("waits")
        await stop(first, tmp_path)
        code, text = await refused(tmp_path)
        assert (code, f"(pid {first.child.pid}, {first.address})" in text) == (4, True)
        with closing(sqlite3.connect(tmp_path / "takt.db")) as database, database:
            database.execute("UPDATE lease SET beat = beat - ?", (SILENCE_SECONDS,))  # instead of waiting for so long
        code, text = await refused(tmp_path, listen=first.address)
        assert (code, first.address in text) == (5, True)
        with closing(Store.open_read_only(tmp_path)) as store:
            lease = store.lease()
        assert lease is not None
        assert lease.address == first.address, "one that cannot serve takes nothing from anybody"
        async with coordinator(tmp_path) as second:
            # A request that the first one finds in its socket when it wakes up.
            late = asyncio.create_task(first.submit("late"))
            await asyncio.sleep(0.2)
            before = jobs_of(tmp_path)
            first.child.send_signal(signal.SIGCONT)
            assert await asyncio.wait_for(first.child.wait(), 10) == 4
            with pytest.raises(grpc.aio.AioRpcError):
                await late
            assert first.child.stderr is not None
            *_, last = (await first.child.stderr.read()).decode().splitlines()
            assert (
                last == f"error: another coordinator has taken the state folder over, which listens at {second.address}"
            )
            assert [record.id for record in before] == ["waits"]
            after = jobs_of(tmp_path)
            assert [(record.id, record.owner) for record in after] == [("waits", before[0].owner)]
            assert (await second.submit("next")).state == jobs_pb2.JOB_STATE_QUEUED
            code, text = await refused(tmp_path)
            assert (code, f"(pid {second.child.pid}, {second.address})" in text) == (4, True)


@pytest.mark.timeout(60)
async def test_lease_of_two_started_at_once_one_serves_and_the_other_names_it(tmp_path: Path) -> None:
    children = await asyncio.gather(*(spawn(tmp_path) for _ in range(2)))
    try:
        ends = [asyncio.create_task(child.wait()) for child in children]
        await asyncio.wait(ends, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        (loser,) = [child for child in children if child.returncode is not None]
        (winner,) = [child for child in children if child.returncode is None]
        assert loser.returncode == 4
        assert winner.stdout is not None
        at = parse_announcement((await asyncio.wait_for(winner.stdout.readline(), READY_SECONDS)).decode())
        assert at is not None
        assert loser.stderr is not None
        assert f"(pid {winner.pid}, {at.address})" in (await loser.stderr.read()).decode()
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
            await child.communicate()


async def test_lease_lost_under_a_run_that_then_writes_nothing_more(tmp_path: Path) -> None:
    async with rig(tmp_path) as world:
        await world.add_agents(2)
        await world.submit(spec_json(train={"max_steps": 5000}), job="runs")
        await world.until("runs", lambda job: job.step > 5)
        with closing(Store.open(tmp_path, owner="another", needs_lease=True)) as other:
            assert other.take_lease(seen=other.lease(), now=1.0)
            taken = other.view("runs")
            lost = await asyncio.wait_for(world.coordinator.lost, 5)
            assert str(lost) == "another coordinator has taken the state folder over"
            await world.coordinator.leave()
            assert other.view("runs") == taken
            assert taken is not None
            lines = (tmp_path / "jobs/runs/steps.jsonl").read_text().count("\n")
            assert lines == taken.record.step
