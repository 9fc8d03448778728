"""The end of a step over stages and replicas: the norm, the rates, and replicas that stay alike."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from stage_worker.comm_place import Place
from stage_worker.engine.exchange import Exchange
from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule
from stage_worker.engine.ledger import Ledger
from stage_worker.engine.open_step import OpenStep
from stage_worker.engine.optimizer import OptimizerName, OptimizerSettings
from stage_worker.engine.precision import FP32
from stage_worker.engine.running_statistics import RunningStatistics
from stage_worker.engine.shared import SharedSums
from stage_worker.engine.update import Update
from stage_worker.engine.weights import Weights
from stage_worker.models.loaded import LoadedModel
from tests.unit.engine_harness import setting
from tests.unit.joined_transport import JoinedTransport, Wire, take_turns
from tests.unit.joined_workers import differing, merged, run_joined, tiny_case
from tests.unit.tiny_bert import load_tiny

PLACED = {0: "bert.embeddings.word_embeddings.weight", 1: "classifier.weight"}
"""Parameter of each stage that gets a gradient."""
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


class StubbedWorker:
    """One worker of two stages whose backwards left a gradient of one element; updates are w - gradient."""

    def __init__(self, wire: Wire, place: Place, *, gradient: float, max_norm: float) -> None:
        self.name = PLACED[place.pp_rank]
        self.model = load_tiny(stage=place.pp_rank, pp=2)
        self.before = self.model.held[self.name].detach().clone()
        transport = JoinedTransport(wire, place)
        weights = Weights(self.model, dtype=torch.float32)
        rate = LearningRate(base=1.0, schedule=LearningRateSchedule.CONSTANT, warmup_fraction=0.0, total_steps=1)
        self.update = Update(
            self.model,
            weights,
            shared=SharedSums(weights, (), transport, worker=place.worker),
            statistics=RunningStatistics(self.model),
            optimizer=OptimizerSettings(
                name=OptimizerName.SGD, learning_rate=rate, weight_decay=0.0, max_grad_norm=max_norm
            ),
            loss_scale=None,
            dp=place.dp,
            transport=transport,
            ledger=Ledger(),
            before_update=lambda: None,
        )
        exchange = Exchange(transport, setting(), stages=[place.pp_rank], hidden_size=16, precision=FP32)
        self.step = OpenStep(setting=setting(), exchange=exchange, holds_last_stage=False)
        weights.masters[self.name].grad = torch.zeros_like(self.before)
        weights.masters[self.name].grad[0, 0] = gradient

    def run(self) -> None:
        self.update.add_up(self.step)
        self.update.apply(self.step)

    @property
    def moved(self) -> float:
        return (self.before - self.model.held[self.name]).norm().item()


@pytest.mark.parametrize(
    "gradients", [((3.0, 4.0),), ((1.0, 4.0), (2.0, 0.0)), ((-3.0, 1.5), (6.0, 2.5))], ids=["dp1", "dp2", "dp2 opposed"]
)
@pytest.mark.parametrize(("max_norm", "shares"), [(1.0, (0.6, 0.8)), (0.0, (3.0, 4.0)), (5.5, (3.0, 4.0))], ids=str)
def test_norm_and_clipping_are_of_the_sum_over_replicas_on_all_stages(
    max_norm: float, shares: tuple[float, float], gradients: tuple[tuple[float, float], ...]
) -> None:
    """Norms 3 and 4 make 5; clipped to 1 they are 0.6 and 0.8, where each alone would be 1."""
    dp, wire = len(gradients), Wire()
    workers = [
        StubbedWorker(wire, Place(worker=2 * rank + stage, pp=2, dp=dp), gradient=of_stage, max_norm=max_norm)
        for rank, by_stage in enumerate(gradients)
        for stage, of_stage in enumerate(by_stage)
    ]
    assert take_turns(wire, [worker.run for worker in workers]) == [None] * 2 * dp
    assert [worker.step.grad_norm for worker in workers] == [5.0] * 2 * dp
    assert [worker.moved for worker in workers] == pytest.approx([*shares] * dp, abs=1e-5)


@pytest.mark.parametrize(
    "layout",
    [{"pp": 2}, {"dp": 2}, {"num_slices": 2}, {"dp": 2, "pp": 2}, {"dp": 2, "pp": 2, "num_slices": 2}],
    ids=str,
)
def test_rates_of_an_epoch_do_not_depend_on_the_layout(layout: dict[str, int]) -> None:
    """80 rows in batches of 8 are 10 steps, whatever the workers and slices; 2 of them warm up."""
    lengths = ((3, 2, 4, 3, 2, 3, 4, 2),) * 10
    case = tiny_case(
        lengths=lengths, num_microbatches=1, learning_rate=8e-3, lr_schedule="linear", warmup_fraction=0.2, **layout
    )
    for outcome in run_joined(case):
        rates = [step.learning_rate / 8e-3 for step in outcome.result.steps]
        assert rates == pytest.approx([0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
        counts = {tensor.item() for name, tensor in outcome.result.tensors.items() if name.endswith(".step")}
        assert counts == {10.0}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_decay_alone_shrinks_masters_of_matrices_and_nothing_else(pp: int, precision: str) -> None:
    """Rate 0.1 and decay 0.1 with gradients of 0: x 0.99, in fp32 whatever the layers compute in."""

    def silence(place: Place, model: LoadedModel) -> None:
        model.model.get_submodule("classifier").register_forward_hook(lambda module, inputs, logits: logits * 0.0)
        for master in model.held.values():
            master.data[...] = 2.0  # new biases are 0, and would stay so

    case = tiny_case(pp=pp, precision=precision, learning_rate=0.1, weight_decay=0.1)
    final = merged(run_joined(case, tamper=silence), "final/")
    assert len(final) == 73
    for name, after in final.items():
        stays = name.endswith("bias") or "LayerNorm" in name
        assert after.unique().tolist() == pytest.approx([2.0 if stays else 2.0 * 0.99], rel=1e-7), name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_replicas_with_new_heads_start_and_stay_alike(precision: str, tmp_path: Path) -> None:
    """Dropout draws differently on each replica, so gradients do differ before they are added."""
    AutoModel.from_config(load_tiny(**DROPOUT).config).save_pretrained(tmp_path)  # a body without a head
    lengths = ((3, 2, 4, 3, 2, 3, 4, 2),) * 5
    case = tiny_case(
        pp=2, dp=2, lengths=lengths, words=45, folder=str(tmp_path), precision=precision, records_gradients=True
    )
    started: dict[Place, dict[str, torch.Tensor]] = {}

    def look(place: Place, model: LoadedModel) -> None:
        started[place] = {name: p.detach().clone() for name, p in model.held.items()}

    outcomes = run_joined(case, tamper=look)
    assert [outcome.error for outcome in outcomes] == [None] * 4
    for one, other in ((0, 2), (1, 3)):
        first, second = outcomes[one], outcomes[other]
        assert differing(started[first.place], started[second.place]) == []
        assert differing(first.weights(), second.weights()) == []
        assert len(differing(first.weights(), started[first.place])) == len(first.weights())
    assert started[outcomes[1].place]["classifier.weight"].std() > 0
    layers = [started[outcomes[0].place][f"bert.encoder.layer.{n}.output.dense.weight"] for n in range(2)]
    assert not torch.equal(*layers)
