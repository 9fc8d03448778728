"""A whole run over real gRPC, with fake workers."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from coordinator_rig import CALL_SECONDS, Rig, rig, spec_json
from takt.v1 import commands_pb2, data_pb2, jobs_pb2


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as running:
        yield running


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_run_two_workers_ends_with_steps_checkpoint_and_evaluation(world: Rig) -> None:
    await world.add_agents(2)
    submitted = await world.submit(job="first")
    assert (submitted.id, submitted.state, submitted.name) == ("first", jobs_pb2.JOB_STATE_QUEUED, "tiny")
    job = await world.until_over("first")
    assert job.state == jobs_pb2.JOB_STATE_SUCCEEDED, job.reason
    folder = world.state_dir / "jobs" / "first"

    assert json.loads((folder / "spec.json").read_text())["name"] == "tiny"
    assert len((folder / "plan.csv").read_text().splitlines()) == 2
    steps = lines(folder / "steps.jsonl")
    # Loss sums of step s are s and s + 1, over 8 rows.
    losses = [(line["step"], line["epoch"], line["loss"]) for line in steps]
    assert losses == [(1, 0, 3 / 8), (2, 0, 5 / 8), (3, 1, 7 / 8)]
    assert steps[0]["rows"] == [[[10, 11, 12, 13], [14, 15, 16, 17]]]
    assert (steps[0]["grad_norm"], steps[0]["learning_rate"], steps[0]["tokens"]) == (2.5, 1e-3, 20)
    (evaluation,) = lines(folder / "eval.jsonl")
    assert (evaluation["step"], evaluation["split"], evaluation["examples"]) == (3, "validation", 6)
    assert evaluation["accuracy"] == pytest.approx(5 / 6)
    manifest = json.loads((folder / "checkpoints/step-3/manifest.json").read_text())
    assert [shard["stage"] for shard in manifest["shards"]] == [0, 1]
    assert (manifest["step"], manifest["epoch"], manifest["num_stages"]) == (3, 1, 2)

    assert (job.step, job.total_steps, job.attempt, job.epoch) == (3, 3, 1, 1)
    assert [jobs_pb2.JobState.Name(change.state)[10:] for change in job.history] == [
        "QUEUED", "STARTING", "RUNNING", "SUCCEEDED",
    ]  # fmt: skip
    assert all(change.reason for change in job.history)
    assert [(w.worker, list(w.stages), w.pid, w.parameters, w.state) for w in job.workers] == [
        (0, [0], 1000, 7, "ended"),
        (1, [1], 1001, 8, "ended"),
    ]
    # Three training and two evaluation steps of half a second each.
    assert [(w.busy_seconds, w.idle_seconds) for w in job.workers] == [(2.5, 1.25)] * 2


async def test_run_with_a_skipped_step_keeps_its_number_and_counts_it(world: Rig) -> None:
    world.behaviour.overflow_at = frozenset({(0, 2), (1, 2)})
    await world.add_agents(2)
    job = await world.until_over((await world.submit()).id)
    assert (job.state, job.step, job.skipped_steps) == (jobs_pb2.JOB_STATE_SUCCEEDED, 3, 1)
    steps = lines(world.state_dir / "jobs" / job.id / "steps.jsonl")
    assert [(line["step"], line["skipped"], line["grad_norm"]) for line in steps] == [
        (1, False, 2.5), (2, True, None), (3, False, 2.5),
    ]  # fmt: skip
    assert [line.get("loss_scale") for line in steps] == [None, 65536.0, None]
    assert len({line["learning_rate"] for line in steps}) == 1


@pytest.mark.parametrize("dp", [1, 2])
async def test_run_in_a_v_takes_losses_and_rows_from_the_first_worker_of_a_replica(world: Rig, dp: int) -> None:
    world.data.num_replicas = dp
    await world.add_agents(2 * dp)
    text = spec_json(parallel={"pp": 2, "dp": dp}, schedule={"name": "zbv", "num_chunks": 2})
    await world.submit(text, job="v")
    job = await world.until_over("v")
    assert job.state == jobs_pb2.JOB_STATE_SUCCEEDED, job.reason
    folder = world.state_dir / "jobs" / "v"

    # Loss sums of step s are s and s + 1 in each replica, over 8 rows.
    losses = [line["loss"] for line in lines(folder / "steps.jsonl")]
    assert losses == [dp * 3 / 8, dp * 5 / 8, dp * 7 / 8]
    (evaluation,) = lines(folder / "eval.jsonl")
    assert (evaluation["examples"], evaluation["accuracy"]) == (6, pytest.approx(5 / 6))
    manifest = json.loads((folder / "checkpoints/step-3/manifest.json").read_text())
    assert ([shard["stage"] for shard in manifest["shards"]], manifest["num_stages"]) == ([0, 1, 2, 3], 4)
    assert [list(worker.stages) for worker in job.workers] == [[0, 3], [1, 2]] * dp
    # Five steps of half a second a stage.
    assert [(w.busy_seconds, list(w.stage_busy_seconds)) for w in job.workers] == [(5.0, [2.5, 2.5])] * 2 * dp
    for worker in range(2 * dp):
        heard = world.transcript.heard["v", worker]
        peers = {command.peer for message in heard for command in message.commands if is_transfer(command.op)}
        assert peers == {worker ^ 1}


def is_transfer(op: int) -> bool:
    return commands_pb2.Op.Name(op).startswith(("OP_SEND", "OP_RECV"))


async def test_run_steady_state_takes_two_messages_a_worker_and_step(world: Rig) -> None:
    await world.add_agents(2)
    num_steps = 20
    job = await world.submit(spec_json(train={"max_steps": num_steps}, eval={"at_end": False}))
    await world.until_over(job.id)
    for worker in (0, 1):
        heard = world.transcript.heard[job.id, worker]
        train_steps = [message for message in heard if message.ends_step]
        assert [message.step for message in train_steps] == list(range(1, num_steps + 1))
        # Beside a message a step each way: rendezvous, save and stop; ready and saved.
        assert world.transcript.num_received[job.id, worker] == num_steps + 3
        assert world.transcript.num_sent[job.id, worker] == num_steps + 2
    # Described a few steps at a time, not one by one.
    assert world.data.described[data_pb2.PHASE_TRAIN] == num_steps / 4


async def test_run_commands_are_numbered_without_a_gap(world: Rig) -> None:
    await world.add_agents(2)
    job = await world.submit()
    await world.until_over(job.id)
    for worker in (0, 1):
        expected = 1
        for message in world.transcript.heard[job.id, worker]:
            assert message.first_seq == expected
            expected += len(message.commands)
        ops = [message.commands[0].op for message in world.transcript.heard[job.id, worker][-4:]]
        forward = {0: commands_pb2.OP_FORWARD, 1: commands_pb2.OP_RECV_ACTIVATION}[worker]
        assert ops == [commands_pb2.OP_SAVE, forward, forward, commands_pb2.OP_STOP]


async def test_run_strict_sends_one_command_at_a_time_and_gives_the_same_result(tmp_path: Path) -> None:
    async with rig(tmp_path / "strict", strict=True) as strict, rig(tmp_path / "plain") as plain:
        for world in (strict, plain):
            await world.add_agents(2)
            await world.submit(job="job")
            assert (await world.until_over("job")).state == jobs_pb2.JOB_STATE_SUCCEEDED
        for worker in (0, 1):
            heard = strict.transcript.heard["job", worker]
            assert {len(message.commands) for message in heard} == {1}
            assert all(message.acknowledge for message in heard)
            singles = [(message.step, message.commands[0].SerializeToString()) for message in heard]
            wholes = [
                (message.step, command.SerializeToString())
                for message in plain.transcript.heard["job", worker]
                for command in message.commands
            ]
            assert singles == wholes
    steps = [lines(tmp_path / name / "jobs/job/steps.jsonl") for name in ("strict", "plain")]
    for line in (*steps[0], *steps[1]):
        del line["seconds"]
    assert steps[0] == steps[1]


async def test_run_evaluates_and_saves_while_training(world: Rig) -> None:
    await world.add_agents(2)
    job = await world.submit(spec_json(train={"max_steps": 201}, eval={"every_steps": 100}))
    assert (await world.until_over(job.id)).state == jobs_pb2.JOB_STATE_SUCCEEDED
    folder = world.state_dir / "jobs" / job.id
    assert [line["step"] for line in lines(folder / "eval.jsonl")] == [100, 200, 201]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step-200", "step-201"]


async def test_two_jobs_four_slots_run_side_by_side(world: Rig) -> None:
    world.behaviour.hang_at = (1, 2)
    await world.add_agents(4)
    first, second = await world.submit(), await world.submit()
    for job in (first, second):
        await world.until(job.id, lambda found: found.state == jobs_pb2.JOB_STATE_RUNNING)
    slots = await world.slots()
    assert [(slot.slot, slot.state, slot.job, slot.worker) for slot in slots] == [
        (0, "busy", first.id, 0), (1, "busy", first.id, 1), (2, "busy", second.id, 0), (3, "busy", second.id, 1),
    ]  # fmt: skip
    assert [list(slot.stages) for slot in slots] == [[0], [1], [0], [1]]
    for job in (first, second):
        await world.jobs.CancelJob(jobs_pb2.CancelJobRequest(id=job.id, grace_seconds=0.1), timeout=CALL_SECONDS)
        await world.until_over(job.id)


async def test_two_jobs_two_slots_run_one_after_the_other(world: Rig) -> None:
    first = await world.submit()
    second = await world.submit()
    waiting = await world.until(second.id, lambda found: found.missing_slots > 0)
    assert waiting.reason == "needs 2 slots, 0 of 0 are free, 2 missing; start 2 more stage workers"
    await world.add_agents(2)
    done = [await world.until_over(job.id) for job in (first, second)]
    assert [job.state for job in done] == [jobs_pb2.JOB_STATE_SUCCEEDED] * 2
    assert done[0].ended <= done[1].started
    assert [slot.state for slot in await world.slots()] == ["free", "free"]
