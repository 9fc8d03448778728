"""The engine on a GPU against the same engine on the CPU, and NCCL between two GPUs. Not run where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stage_worker.comm_store import open_store
from stage_worker.engine.commands import Command, Op, Phase, Shape, StepCommands, StepSetting
from stage_worker.engine.engine import Engine
from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule
from stage_worker.engine.ledger import Ledger
from stage_worker.engine.optimizer import OptimizerName, OptimizerSettings
from stage_worker.models.microbatch import Microbatch
from tests.unit.fake_transport import FakeTransport
from tests.unit.tiny_bert import load_tiny

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

ROOT = Path(__file__).resolve().parents[2]


class Rows:
    """Random rows."""

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        """Return the same rows every time."""
        shape = setting.microbatches[microbatch]
        generator = torch.Generator().manual_seed(microbatch)
        ids_BL = torch.randint(5, 45, (shape.rows, shape.width), generator=generator)
        mask_BL = torch.ones_like(ids_BL)
        mask_BL[0, -1] = 0
        labels = torch.randint(0, 2, (shape.rows,), generator=generator)
        return Microbatch(tuple(range(shape.rows)), ids_BL, torch.zeros_like(ids_BL), mask_BL, labels)


def train(device: torch.device) -> tuple[dict[str, torch.Tensor], float]:
    model = load_tiny(seed=2, device=device)
    rate = LearningRate(base=0.1, schedule=LearningRateSchedule.CONSTANT, warmup_fraction=0, total_steps=3)
    engine = Engine(
        model,
        optimizer=OptimizerSettings(name=OptimizerName.SGD, learning_rate=rate, weight_decay=0.01, max_grad_norm=1.0),
        seed=2,
        dp=1,
        dp_rank=0,
        worker=0,
        worker_by_stage=[0],
        transport=FakeTransport(),
        batches=Rows(),
        ledger=Ledger(),
    )
    shapes = (Shape(3, 9), Shape(2, 5))
    commands = tuple(Command(op, 0, m) for m in range(2) for op in (Op.FORWARD, Op.BACKWARD))
    norm = 0.0
    for step in range(1, 4):
        setting = StepSetting(phase=Phase.TRAIN, split="train", step=step, denominator=5, microbatches=shapes)
        result = engine.run(StepCommands(setting, 1, (*commands, Command(Op.REDUCE), Command(Op.STEP)), True))
        assert result is not None
        assert result.grad_norm is not None
        norm = result.grad_norm
    return {name: tensor.cpu() for name, tensor in model.state(0).items()}, norm


def test_engine_on_a_gpu_trains_like_on_the_cpu() -> None:
    on_gpu, norm = train(torch.device("cuda", 0))
    expected, expected_norm = train(torch.device("cpu"))
    assert norm == pytest.approx(expected_norm, rel=1e-3)
    for name, tensor in on_gpu.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-5)


NCCL_WORKER = """
import sys, torch
from stage_worker.comm import TransportName, join_transport
from stage_worker.comm_place import Place
from stage_worker.comm_store import join_store
from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import Message, TransferKind

worker, device = int(sys.argv[1]), torch.device("cuda", int(sys.argv[1]))
torch.cuda.set_device(device)
transport = join_transport(
    TransportName.AUTO, join_store(sys.argv[2], limit_seconds=60), place=Place(worker=worker, pp=2, dp=1),
    pp_rank_by_stage=(0, 1), job="test", attempt=1, host="127.0.0.1", device=device, limit_seconds=60,
    shared_pairs=(),
)
messages = [
    Message(phase=Phase.TRAIN, step=1, kind=TransferKind.ACTIVATION, boundary=0, microbatch=m, shape=(2, m + 1, 4),
            dtype=torch.float32)
    for m in range(8)
]
if worker == 0:
    for m, message in enumerate(messages):
        transport.send(torch.full(message.shape, float(m), device=device), message, to_worker=1)
else:
    pending = [transport.receive(message, from_worker=0) for message in messages]
    assert [receive.wait().unique().tolist() for receive in pending] == [[float(m)] for m in range(8)]
total = transport.add_over_stages(torch.tensor([1.0 + worker, 0.0], dtype=torch.float64))
assert total.tolist() == [3.0, 0.0], total
transport.flush()
transport.close()
"""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_nccl_between_two_gpus_moves_what_was_announced() -> None:
    store = open_store("127.0.0.1", limit_seconds=60)
    workers = [
        subprocess.Popen([sys.executable, "-c", NCCL_WORKER, str(worker), store.address], cwd=ROOT)
        for worker in range(2)
    ]
    try:
        assert [worker.wait(150) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
