import pytest
from takt.v1 import commands_pb2, data_pb2

from coordinator.assignment import assignment_of
from coordinator.dispatch import Dispatch
from coordinator.events import Item, ItemKind
from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.feed import Feed
from coordinator.planning import JobPlan, plan_job
from coordinator.spec import parse_spec


def job_plan(
    *, pp: int = 2, dp: int = 1, schedule: str = "1f1b", num_chunks: int = 1, layers_per_stage: list[int] | None = None
) -> JobPlan:
    spec = parse_spec(
        {
            "name": "tiny",
            "model": {"config": {"model_type": "bert"}},
            "data": {"task": "demo"},
            "parallel": {"pp": pp, "dp": dp, "layers_per_stage": layers_per_stage},
            "schedule": {"name": schedule, "num_chunks": num_chunks, "num_microbatches": 2},
            "train": {"global_batch_size": 16, "max_steps": 3},
        }
    )
    model = ModelFacts(
        model_type="bert", num_layers=6, hidden_size=8, max_positions=512, vocabulary_size=0, token_types=2, labels=()
    )
    data = DataFacts(
        splits=(
            Split(name="train", num_rows=64, labelled=True, num_steps=1, digest="t"),
            Split(name="validation", num_rows=8, labelled=True, num_steps=1, digest="v"),
        ),
        labels=("no", "yes"),
        num_labels=2,
        vocabulary_size=100,
        pad_token_id=0,
        steps_per_epoch=4,
        total_steps=3,
    )
    return plan_job(spec, model=model, data=data)


def description(step: int, *, dp: int = 1) -> data_pb2.StepDescription:
    """Different shapes for every microbatch: replica r, microbatch m has 4 + m rows of width 10 * r + m + 3."""
    replicas = [
        data_pb2.ReplicaShape(
            microbatches=[data_pb2.MicrobatchShape(rows=4 + m, width=10 * r + m + 3) for m in range(2)]
        )
        for r in range(dp)
    ]
    return data_pb2.StepDescription(step=step, denominator=9 * dp, replicas=replicas)


def text(message: commands_pb2.StepCommands) -> str:
    """Return commands as ``F0`` (op, microbatch) and transfers with ``>peer``, all of the message's stage."""
    names = {"SEND_ACTIVATION": "SF", "RECV_ACTIVATION": "RF", "SEND_GRADIENT": "SB", "RECV_GRADIENT": "RB"}
    words = []
    for command in message.commands:
        op = commands_pb2.Op.Name(command.op).removeprefix("OP_")
        if op in names:
            words.append(f"{names[op]}{command.microbatch}>{command.peer}")
        elif op in ("FORWARD", "BACKWARD"):
            words.append(f"{op[0]}{command.microbatch}")
        else:
            words.append(op)
    return " ".join(words)


def test_messages_training_step_is_each_workers_list_with_its_shapes() -> None:
    dispatch = Dispatch(job_plan(), job="j", attempt=1)
    messages = dict(dispatch.messages(Item(ItemKind.TRAIN, 2, 2), description(2)))
    # By hand from 1f1b with P=2, M=2: a receive stands one compute action ahead, a send right behind.
    assert text(messages[0]) == "F0 SF0>1 RB0>1 F1 SF1>1 RB1>1 B0 B1 REDUCE STEP"
    assert text(messages[1]) == "RF0>0 F0 RF1>0 B0 SB0>0 F1 B1 SB1>0 REDUCE STEP"
    assert [command.stage for command in messages[1].commands] == [1] * 8 + [0] * 2
    for message in messages.values():
        assert [(m.rows, m.width) for m in message.microbatches] == [(4, 3), (5, 4)]
        assert (message.job, message.attempt, message.phase) == ("j", 1, data_pb2.PHASE_TRAIN)
        assert (message.step, message.denominator, message.split, message.ends_step) == (2, 9, "train", True)


def test_messages_second_replica_has_its_own_shapes_and_peers() -> None:
    dispatch = Dispatch(job_plan(dp=2), job="j", attempt=1)
    messages = dict(dispatch.messages(Item(ItemKind.TRAIN, 1, 1), description(1, dp=2)))
    assert text(messages[2]) == "F0 SF0>3 RB0>3 F1 SF1>3 RB1>3 B0 B1 REDUCE STEP"
    assert {command.peer for command in messages[3].commands if command.peer} == {2}
    assert [(m.rows, m.width) for m in messages[3].microbatches] == [(4, 13), (5, 14)]


def test_messages_in_a_v_name_the_worker_of_the_neighbouring_stage_in_each_replica() -> None:
    v = [0, 1, 2, 2, 1, 0]
    step = {"ACTIVATION": 1, "GRADIENT": -1}
    messages = Dispatch(job_plan(pp=3, dp=2, schedule="zbv", num_chunks=2), job="j", attempt=1).messages(
        Item(ItemKind.TRAIN, 1, 1), description(1, dp=2)
    )
    for worker, message in messages:
        dp_rank, pp_rank = divmod(worker, 3)
        moved = []
        for command in message.commands:
            way, _, what = commands_pb2.Op.Name(command.op).removeprefix("OP_").partition("_")
            if way in ("SEND", "RECV"):
                other = command.stage + (step[what] if way == "SEND" else -step[what])
                assert command.peer == 3 * dp_rank + v[other]
                assert v[command.stage] == pp_rank != v[other]
                moved.append((way, what, command.stage, command.microbatch))
        # Two neighbours and two microbatches, but stages 2 and 3 are on one worker and 0 and 5 end the pipeline.
        assert len(moved) == len(set(moved)) == {0: 2 * 2, 1: 4 * 2, 2: 2 * 2}[pp_rank] * 2


def test_messages_split_backward_is_its_two_halves() -> None:
    # By hand: zbh1, P=2, M=2. Stage 1 sends each gradient before the weights' turn, one microbatch late.
    messages = dict(
        Dispatch(job_plan(schedule="zbh1"), job="j", attempt=1).messages(Item(ItemKind.TRAIN, 1, 1), description(1))
    )
    computes = [
        f"{commands_pb2.Op.Name(command.op)[3:]} {command.microbatch}"
        for command in messages[1].commands
        if command.op in (commands_pb2.OP_INPUT_GRADIENT, commands_pb2.OP_WEIGHT_GRADIENT)
    ]
    assert computes == ["INPUT_GRADIENT 0", "INPUT_GRADIENT 1", "WEIGHT_GRADIENT 0", "WEIGHT_GRADIENT 1"]


def test_assignment_tells_where_every_stage_is_and_which_split_their_backwards() -> None:
    def stages(plan: JobPlan, worker: int) -> list[tuple[int, bool]]:
        place = assignment_of(plan, job="j", attempt=1, worker=worker, saved=None, data_service="d")
        return [(stage.stage, stage.splits_backward) for stage in place.stages]

    plan = job_plan(dp=2, schedule="zbv", num_chunks=2)
    place = assignment_of(plan, job="j", attempt=1, worker=2, saved=None, data_service="d")
    assert (list(place.pp_rank_by_stage), place.num_stages, place.num_workers) == ([0, 1, 1, 0], 4, 4)
    assert [(stage.stage, stage.first_layer, stage.num_layers) for stage in place.stages] == [(0, 0, 2), (3, 5, 1)]
    assert list(place.layers_by_stage) == [2, 2, 1, 1]
    assert [(each.split, each.digest) for each in place.split_digests] == [("train", "t"), ("validation", "v")]
    sized = job_plan(dp=2, schedule="zbv", num_chunks=2, layers_per_stage=[1, 2, 1, 2])
    place = assignment_of(sized, job="j", attempt=1, worker=2, saved=None, data_service="d")
    assert [(stage.stage, stage.first_layer, stage.num_layers) for stage in place.stages] == [(0, 0, 1), (3, 4, 2)]
    assert list(place.layers_by_stage) == [1, 2, 1, 2]
    # Stage 0 sends no gradient, so its halves stand side by side as one; stage 1 sends it between the two.
    assert [stages(job_plan(schedule="zbh1"), worker) for worker in (0, 1)] == [[(0, False)], [(1, True)]]
    assert [stages(job_plan(schedule="1f1b"), worker) for worker in (0, 1)] == [[(0, False)], [(1, False)]]


def test_messages_evaluation_step_only_goes_forward() -> None:
    dispatch = Dispatch(job_plan(), job="j", attempt=1)
    messages = dict(dispatch.messages(Item(ItemKind.EVALUATE, 1, 3, "validation"), description(1)))
    assert text(messages[0]) == "F0 SF0>1 F1 SF1>1"
    assert text(messages[1]) == "RF0>0 RF1>0 F0 F1"
    assert (messages[1].phase, messages[1].split) == (data_pb2.PHASE_EVALUATE, "validation")


def test_messages_steps_do_not_leak_into_each_other() -> None:
    dispatch = Dispatch(job_plan(), job="j", attempt=1)
    first = dispatch.messages(Item(ItemKind.TRAIN, 1, 1), description(1))[0][1]
    second = dispatch.messages(Item(ItemKind.TRAIN, 2, 2), description(2))[0][1]
    assert (first.step, second.step) == (1, 2)
    assert len(first.microbatches) == len(second.microbatches) == 2


def test_messages_save_goes_to_the_first_replica_and_stop_to_all() -> None:
    dispatch = Dispatch(job_plan(dp=2), job="j", attempt=1)
    saves = dispatch.messages(Item(ItemKind.SAVE, 3, 3), None)
    assert [(worker, text(message), message.step) for worker, message in saves] == [(0, "SAVE", 3), (1, "SAVE", 3)]
    stops = dispatch.messages(Item(ItemKind.STOP, 3, 3), None)
    assert [(worker, text(message), message.ends_step) for worker, message in stops] == [
        (worker, "STOP", False) for worker in range(4)
    ]


def test_messages_description_of_another_step_is_refused() -> None:
    with pytest.raises(ValueError, match="step 2 needs the description of its own step"):
        Dispatch(job_plan(), job="j", attempt=1).messages(Item(ItemKind.TRAIN, 2, 2), description(3))


@pytest.mark.parametrize("num_microbatches", [1, 3])
def test_messages_description_with_other_microbatches_than_planned_is_refused(num_microbatches: int) -> None:
    dispatch = Dispatch(job_plan(), job="j", attempt=1)
    other = data_pb2.StepDescription(step=1, denominator=9, replicas=[data_pb2.ReplicaShape()])
    for _ in range(num_microbatches):
        other.replicas[0].microbatches.add(rows=3, width=3)
    with pytest.raises(ValueError, match=rf"step 1 was described with {num_microbatches} micro.*but the plan has 2"):
        dispatch.messages(Item(ItemKind.TRAIN, 1, 1), other)


def commands_of(count: int, *, ends_step: bool = True) -> commands_pb2.StepCommands:
    commands = [commands_pb2.Command(op=commands_pb2.OP_FORWARD, microbatch=m) for m in range(count)]
    return commands_pb2.StepCommands(step=1, commands=commands, ends_step=ends_step)


def test_feed_numbers_commands_on_from_one() -> None:
    feed = Feed(strict=False)
    sent = [*feed.offer(commands_of(5)), *feed.offer(commands_of(1)), *feed.offer(commands_of(3))]
    assert [message.first_seq for message in sent] == [1, 6, 7]
    assert [message.acknowledge for message in sent] == [False] * 3


def test_feed_strict_lets_one_command_out_at_a_time() -> None:
    feed = Feed(strict=True)
    out = [*feed.offer(commands_of(2)), *feed.offer(commands_of(1, ends_step=False))]
    assert len(out) == 1
    for seq in (1, 2, 3):
        out += feed.done(seq)
        out += feed.done(seq)
    assert [(m.first_seq, [c.microbatch for c in m.commands], m.ends_step, m.acknowledge) for m in out] == [
        (1, [0], False, True),
        (2, [1], True, True),
        (3, [0], False, True),
    ]
