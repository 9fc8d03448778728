"""Several stages on one worker: what passes between them without a transfer, and the two halves of a backward."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it

from stage_worker.engine.commands import Command, Op, Phase, Shape
from stage_worker.engine.failure import CommandFailed, CommandOrderError
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.engine.result import StepResult
from stage_worker.engine.transport import Message, TransferKind
from tests.unit.engine_harness import Harness, Rows, command, setting
from tests.unit.fake_transport import FakeTransport, LinkedTransport
from tests.unit.joined_workers import run_joined, tiny_case
from tests.unit.tiny_bert import load_tiny

OPS = {"F": Op.FORWARD, "B": Op.BACKWARD, "I": Op.INPUT_GRADIENT, "W": Op.WEIGHT_GRADIENT}
V = (0, 1, 1, 0)
"""Worker of each stage: the last stage is where the first one is, and worker 1 holds two neighbours."""
SHAPES = (Shape(2, 5), Shape(3, 4), Shape(1, 7))
V_ORDER = (
    "0F0 1F0 2F0 0F1 1F1 3F0 3I0 2F1 3W0 2I0 0F2 2W0 1I0 3F1 3I1 1F2 0I0 2F2 2I1 3F2 1W0 0W0 3I2 3W1 3W2 "
    "1I1 2I2 2W1 0I1 1W1 1I2 2W2 0W1 1W2 0B2"
)
"""Three microbatches over four stages, some of their W late; one worker after the other in this order."""


class Workers:
    """Workers of one replica, driven by one thread in an order where whatever is waited for has been sent."""

    def __init__(self, worker_by_stage: tuple[int, ...], *, splits: bool = True, dropout: float = 0.0) -> None:
        wire: dict[Message, torch.Tensor] = {}
        self.worker_by_stage = worker_by_stage
        self.workers = [
            Harness(
                stage=tuple(stage for stage, at in enumerate(worker_by_stage) if at == worker),
                pp=len(worker_by_stage),
                splits=splits,
                dropout=dropout,
                transport=LinkedTransport(wire=wire),
            )
            for worker in range(max(worker_by_stage) + 1)
        ]

    def run(self, words: str, *, phase: Phase = Phase.TRAIN, shapes: tuple[Shape, ...] = SHAPES) -> list[StepResult]:
        """Obey words such as ``0F1`` with the transfers that they need; return each worker's result."""
        changes = {"phase": phase, "shapes": shapes, "rows": 6}
        for word in words.split():
            stage, op, microbatch = int(word[0]), OPS[word[1]], int(word[2:])
            at = self.worker_by_stage[stage]
            for each in self._with_transfers(stage, op, microbatch):
                self.workers[at].run(each, **changes)
        results = [worker.run(ends=True, **changes) for worker in self.workers]
        assert all(worker.engine.in_flight == 0 for worker in self.workers)
        return [result for result in results if result is not None]

    def gradients(self) -> dict[str, torch.Tensor]:
        return {name: grad for worker in self.workers for name, grad in worker.gradients().items()}

    def _with_transfers(self, stage: int, op: Op, microbatch: int) -> list[Command]:
        below, above = self._peer(stage, stage - 1), self._peer(stage, stage + 1)
        source, receive, target, send = (
            (below, Op.RECV_ACTIVATION, above, Op.SEND_ACTIVATION)
            if op is Op.FORWARD
            else (above, Op.RECV_GRADIENT, below, Op.SEND_GRADIENT)
        )
        commands = [command(op, stage=stage, microbatch=microbatch)]
        if op is not Op.WEIGHT_GRADIENT and source is not None:
            commands.insert(0, command(receive, stage=stage, microbatch=microbatch, peer=source))
        if op is not Op.WEIGHT_GRADIENT and target is not None:
            commands.append(command(send, stage=stage, microbatch=microbatch, peer=target))
        return commands

    def _peer(self, stage: int, neighbour: int) -> int | None:
        """Return the worker of a neighbouring stage, None where there is none or it is the same worker."""
        if not 0 <= neighbour < len(self.worker_by_stage):
            return None
        peer = self.worker_by_stage[neighbour]
        return peer if peer != self.worker_by_stage[stage] else None


def whole_model() -> tuple[dict[str, torch.Tensor], list[float]]:
    """Return gradients and sums of losses from the library's own model and plain autograd, in one piece."""
    model, losses = load_tiny().model, []
    for microbatch in range(len(SHAPES)):
        batch = Rows().get(setting(shapes=SHAPES), microbatch)
        logits_BC = model(input_ids=batch.input_ids_BL, token_type_ids=batch.token_type_ids_BL).logits
        loss = F.cross_entropy(logits_BC, batch.labels, reduction="sum")
        (loss / 6).backward()
        losses.append(loss.item())
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, losses


def assert_same_bits(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, gradient in expected.items() if not torch.equal(found[name], gradient)] == []


def order_of(num_stages: int, *, halves: bool) -> str:
    """Return all forwards, then all backwards, ascending."""
    stages = range(num_stages)
    words = [f"{stage}F{m}" for m in range(3) for stage in stages]
    for m in range(3):
        words += [f"{stage}{'I' if halves else 'B'}{m}" for stage in reversed(stages)]
    return " ".join(words + [f"{stage}W{m}" for m in range(3) for stage in stages if halves])


@pytest.mark.parametrize("halves", [False, True], ids=["B", "I and W"])
@pytest.mark.parametrize("worker_by_stage", [(0, 0), (0, 1), (0, 0, 0, 0), (0, 1, 0, 1), V, (0, 0, 1, 1)], ids=str)
def test_every_placement_gives_the_gradients_of_the_model_in_one_piece(
    worker_by_stage: tuple[int, ...], halves: bool
) -> None:
    workers = Workers(worker_by_stage, splits=halves)
    results = workers.run(order_of(len(worker_by_stage), halves=halves))
    expected, losses = whole_model()
    assert len(expected) == 73
    assert_same_bits(workers.gradients(), expected)
    for worker, result in enumerate(results):
        assert result.loss_sums == (tuple(losses) if worker == worker_by_stage[-1] else ())


def test_v_of_two_workers_with_late_weight_gradients_gives_the_same_gradients() -> None:
    workers = Workers(V)
    first, second = workers.run(V_ORDER)
    expected, losses = whole_model()
    assert_same_bits(workers.gradients(), expected)
    assert (first.loss_sums, second.loss_sums) == (tuple(losses), ())
    for result, stages in ((first, "03"), (second, "12")):
        held = peak = 0
        for word in V_ORDER.split():
            if word[0] in stages:
                held += {"F": 1, "B": -1, "I": 0, "W": -1}[word[1]]
                peak = max(peak, held)
        assert result.peak_in_flight == peak == 5


def test_each_microbatch_crosses_a_boundary_once_upwards_and_its_gradient_once_downwards() -> None:
    """H42: rows are padded, yet neither masks nor anything else travels beside the hidden state."""
    case = tiny_case(pp=3, num_microbatches=4, model={"num_hidden_layers": 3}, lengths=((5, 3, 7, 4, 6, 2, 3, 5),))
    sent = [message for outcome in run_joined(case) for message, _, _ in outcome.transport.sent]
    expected = [
        (kind, boundary, microbatch)
        for kind in (TransferKind.ACTIVATION, TransferKind.GRADIENT)
        for boundary in range(2)
        for microbatch in range(4)
    ]
    assert sorted((message.kind, message.boundary, message.microbatch) for message in sent) == sorted(expected)
    assert {message.dtype for message in sent} == {torch.float32}


def test_neighbours_on_one_worker_move_nothing() -> None:
    workers = Workers((0, 0))
    (result,) = workers.run(order_of(2, halves=True))
    transport = workers.workers[0].transport
    assert (transport.sent, transport.received) == ([], [])
    assert (result.sent_bytes, result.received_bytes) == (0, 0)
    v = Workers(V)
    for result in v.run(V_ORDER):
        # Two boundaries are crossed by an activation and a gradient of each of the 29 positions, 16 wide, in fp32.
        assert result.sent_bytes == result.received_bytes == 2 * 29 * 16 * 4


@pytest.mark.parametrize("splits", [False, True])
def test_dropout_follows_the_layers_wherever_they_are(splits: bool) -> None:
    order = order_of(4, halves=splits)
    apart, v = Workers((0, 1, 2, 3), splits=False, dropout=0.1), Workers(V, splits=splits, dropout=0.1)
    apart.run(order_of(4, halves=False))
    v.run(order)
    assert_same_bits(v.gradients(), apart.gradients())
    without, _ = whole_model()
    assert not torch.equal(v.gradients()["classifier.weight"], without["classifier.weight"])


def test_evaluation_over_several_stages_gives_the_logits_of_the_whole_model() -> None:
    workers = Workers(V)
    workers.run("0F0 1F0 2F0 3F0 3I0 2I0 1I0 0I0 3W0 2W0 1W0 0W0", shapes=SHAPES[:1])
    first, second = workers.run(" ".join(f"{stage}F{m}" for m in range(3) for stage in range(4)), phase=Phase.EVALUATE)
    model, expected = load_tiny().model, []
    for microbatch in range(3):
        batch = Rows().get(setting(shapes=SHAPES), microbatch)
        logits_BC = model(input_ids=batch.input_ids_BL, token_type_ids=batch.token_type_ids_BL).logits
        expected += [tuple(row) for row in logits_BC.tolist()]
    assert [row.outputs for row in first.rows] == expected
    assert second.rows == ()
    assert (first.peak_in_flight, second.peak_in_flight) == (0, 0)


def test_step_of_two_stages_updates_like_one_stage() -> None:
    two, one = Harness(stage=(0, 1), pp=2, splits=True), Harness()
    commands = [command(OPS[word[1]], stage=int(word[0])) for word in ("0F", "1F", "1I", "0I", "1W", "0W")]
    done = two.run(*commands, command(Op.REDUCE), command(Op.STEP), ends=True, shapes=SHAPES[:1])
    expected = one.run(
        *(command(op) for op in (Op.FORWARD, Op.BACKWARD, Op.REDUCE, Op.STEP)), ends=True, shapes=SHAPES[:1]
    )
    assert done is not None
    assert expected is not None
    assert done.grad_norm == expected.grad_norm
    assert_same_bits(two.weights(), one.weights())


def test_gradient_can_be_sent_before_the_weight_gradients() -> None:
    harness = Harness(stage=1, pp=2, splits=True, transport=FakeTransport(arriving=torch.ones(2, 5, 16)))
    harness.run(
        command(Op.RECV_ACTIVATION, stage=1),
        command(Op.FORWARD, stage=1),
        command(Op.INPUT_GRADIENT, stage=1),
        command(Op.SEND_GRADIENT, stage=1),
    )
    ((tensor, message, _),) = harness.transport.sent
    assert (message.boundary, message.shape) == (0, (2, 5, 16))
    assert tensor.abs().sum() > 0
    assert harness.engine.in_flight == 1
    assert "classifier.weight" not in harness.gradients()
    harness.run(command(Op.WEIGHT_GRADIENT, stage=1), ends=True)
    assert "classifier.weight" in harness.gradients()


def test_in_flight_is_told_by_stage() -> None:
    harness = Harness(stage=(0, 1), pp=2, splits=True)
    told = []
    for op, stage in ((Op.FORWARD, 0), (Op.FORWARD, 1), (Op.INPUT_GRADIENT, 1), (Op.WEIGHT_GRADIENT, 1)):
        harness.run(command(op, stage=stage))
        told.append(harness.engine.in_flight_by_stage)
    assert told == [{0: 1, 1: 0}, {0: 1, 1: 1}, {0: 1, 1: 1}, {0: 1, 1: 0}]


def test_microbatch_without_rows_does_nothing_in_either_half() -> None:
    harness = Harness(stage=(0, 1), pp=2, splits=True)
    commands = [command(op, stage=stage) for op in OPS.values() for stage in (1, 0)]
    result = harness.run(*commands, ends=True, shapes=(Shape(0, 0),))
    assert result is not None
    assert (harness.gradients(), harness.rows.asked, result.loss_sums) == ({}, [], (0.0,))


def test_time_of_each_half_goes_to_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ticks once a look, so each account's seconds are the number of times it was entered."""
    ticks = iter(range(1000))
    ledger = Ledger(clock=lambda: float(next(ticks)))
    monkeypatch.setattr(ledger, "enter_part", lambda part: None)  # looks at the clock too
    harness = Harness(stage=(0, 1), pp=2, splits=True, ledger=ledger)
    words = "0F0 1F0 1I0 0B0 1W0 0F1 1F1 1I1 1W1 0I1 0W1"
    for word in words.split():
        harness.run(command(OPS[word[1]], stage=int(word[0]), microbatch=int(word[2])))
    seconds = harness.ledger.seconds()
    counted = {
        (letter, stage): seconds.get((activity, stage), 0)
        for letter, activity in (
            ("B", Activity.BACKWARD),
            ("I", Activity.INPUT_GRADIENT),
            ("W", Activity.WEIGHT_GRADIENT),
        )
        for stage in (0, 1)
    }
    assert counted == {("B", 0): 1, ("B", 1): 0, ("I", 0): 1, ("I", 1): 2, ("W", 0): 1, ("W", 1): 2}
    assert seconds[Activity.FORWARD, 0] == seconds[Activity.FORWARD, 1] == 2 * 2  # the mask, then the layers


@pytest.mark.parametrize(
    ("commands", "text"),
    [
        ((command(Op.FORWARD, stage=1),), "the activation of microbatch 0 at boundary 0 is not computed yet"),
        ((command(Op.FORWARD), command(Op.BACKWARD)), "the gradient of microbatch 0 at boundary 0 is not computed yet"),
        ((command(Op.FORWARD), command(Op.SEND_ACTIVATION)), "stages 0 and 1 are both here; nothing moves between"),
        ((command(Op.RECV_ACTIVATION, stage=1),), "stages 0 and 1 are both here; nothing moves between them"),
        ((command(Op.RECV_GRADIENT),), "stages 0 and 1 are both here; nothing moves between them"),
        ((command(Op.FORWARD),), "the activation of microbatch 0 at boundary 0 was computed but not passed on"),
        ((command(Op.INPUT_GRADIENT, stage=1),), "microbatch 0 is not in flight on stage 1"),
        ((command(Op.WEIGHT_GRADIENT),), "microbatch 0 is not in flight on stage 0"),
    ],
)
def test_command_out_of_order_between_stages_of_one_worker_is_refused(commands: tuple[Command, ...], text: str) -> None:
    with pytest.raises(CommandFailed, match=text) as caught:
        Harness(stage=(0, 1), pp=2, splits=True).run(*commands, ends=True)
    assert isinstance(caught.value.cause, CommandOrderError)
