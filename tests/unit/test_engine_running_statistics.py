"""Running statistics against torch's own layers, which are given the whole mini-batch at once.

N values of each channel, C channels.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from stage_worker.engine.commands import Phase, Shape
from stage_worker.engine.failure import CommandFailed
from stage_worker.engine.loss_scale import LossScaleSettings
from stage_worker.engine.precision import ComputeType, Precision
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.running_statistics import RunningStatistics
from stage_worker.models.family import Block
from tests.unit.batch_norm_model import BLOCKS, HIDDEN, load, norm
from tests.unit.batch_norm_workers import ROWS, SHAPES, Plain, TwinTransport, Worker
from tests.unit.engine_harness import setting
from tests.unit.tiny_bert import load_tiny


def assert_follows(worker: Worker, plain: Plain) -> None:
    """Check weights and statistics."""
    found, expected = worker.state(), plain.parameters() | plain.statistics()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=2e-6, atol=1e-6, msg=lambda text, name=name: name + text)


def assert_same_bits(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)] == []


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d])
@pytest.mark.parametrize("momentum", [0.1, 0.75, None])
def test_steps_leave_the_statistics_of_whole_batches(kind: type[nn.Module], momentum: float | None) -> None:
    """Weights too: each microbatch is normalised alone."""
    worker = Worker(kind=kind, momentum=momentum)
    plain = Plain(worker.plain, momentum=momentum)
    for step in (1, 2, 3):
        result = worker.run(step=step)
        plain.step([worker], step=step, rate=result.learning_rate)
        assert_follows(worker, plain)
    assert worker.state()["layers.1.norm.num_batches_tracked"] == 3


def test_layer_without_weights_follows_too() -> None:
    worker = Worker(affine=False)
    plain = Plain(worker.plain, affine=False)
    plain.step([worker], step=1, rate=worker.run().learning_rate)
    assert_follows(worker, plain)


class Alone:
    """One layer of a tower under RunningStatistics, without an engine."""

    def __init__(self, **changes: Any) -> None:
        self.model = load(norm(**changes))
        self.statistics = RunningStatistics(self.model)
        self.layers = [layer.norm.train() for layer in self.model.model.layers]

    def see(self, *microbatches: list[float], order: tuple[int, ...] | None = None) -> list[torch.Tensor]:
        """Give values to all channels of all layers; return what the first channel of the first becomes."""
        out = []
        for number in order or range(len(microbatches)):
            values = microbatches[number]
            x_NC = torch.tensor(values)[:, None].expand(-1, HIDDEN)
            with self.statistics.counting(number):
                made = [layer(x_NC) for layer in self.layers]
            out.append(made[0][:, 0])
        return out


def test_move_is_by_the_mean_and_the_unbiased_variance_of_all_rows() -> None:
    """Rows 1, 3 and 5, 7, 9: mean 5, squares about it 16 + 4 + 0 + 4 + 16 over 4 are 10."""
    alone = Alone(momentum=0.1, affine=False)
    alone.see([1.0, 3.0], [5.0, 7.0, 9.0])
    layer = alone.layers[0]
    assert layer.running_mean.tolist() == [0.0] * HIDDEN  # nothing moves before the end of the step
    alone.statistics.add_up(lambda sums: sums)
    alone.statistics.move()
    torch.testing.assert_close(layer.running_mean, torch.full((HIDDEN,), 0.1 * 5))
    torch.testing.assert_close(layer.running_var, torch.full((HIDDEN,), 0.9 * 1 + 0.1 * 10))
    assert layer.num_batches_tracked == 1
    alone.statistics.clear()
    alone.statistics.move()
    assert layer.num_batches_tracked == 1  # what is forgotten moves nothing


def test_microbatch_is_normalised_by_its_own_rows() -> None:
    """Rows 1, 3 have mean 2 and biased variance 1; rows 5, 7, 9 have mean 7 and 8 / 3."""
    out = Alone(affine=False, eps=1e-12).see([1.0, 3.0], [5.0, 7.0, 9.0])
    torch.testing.assert_close(out[0], torch.tensor([-1.0, 1.0]))
    torch.testing.assert_close(out[1], torch.tensor([-(1.5**0.5), 0.0, 1.5**0.5]))


def test_far_from_0_the_variance_is_not_lost() -> None:
    """Mean 4096.5, squares about it 1/4 + 0 + 0 + 1/4 over 3 are 1/6; in fp32 squares of rows go by 2."""
    alone = Alone(momentum=None, affine=False)
    alone.see([4096.0, 4096.5], [4096.5, 4097.0])
    alone.statistics.add_up(lambda sums: sums)
    alone.statistics.move()
    torch.testing.assert_close(alone.layers[1].running_var, torch.full((HIDDEN,), 1 / 6), rtol=1e-5, atol=0.0)


def test_microbatches_are_added_in_the_order_of_their_numbers() -> None:
    """In float64 2^61 - 2^61 + 4 is 4, and in another order 0."""
    large, totals = 2.0**60, []
    for order in ((0, 1, 2), (2, 0, 1)):
        alone = Alone(affine=False)
        alone.see([large, large], [-large, -large], [1.0, 3.0], order=order)
        alone.statistics.add_up(lambda sums: totals.append(sums) or sums)
    assert totals[0][1 : 1 + HIDDEN].tolist() == [4.0] * HIDDEN
    assert torch.equal(totals[1], totals[0])


def test_layer_in_evaluation_mode_counts_nothing() -> None:
    alone = Alone(affine=False, eps=1e-12)
    for layer in alone.layers:
        layer.eval()
    assert alone.see([1.0, 3.0])[0].tolist() == [1.0, 3.0]  # by mean 0 and variance 1, as a new layer has it
    alone.statistics.add_up(lambda sums: sums)
    alone.statistics.move()
    assert alone.layers[0].num_batches_tracked == 0


def run_twins(*shapes: tuple[Shape, ...]) -> list[Worker]:
    """Run a step of a replica for each element."""
    barrier, parts = threading.Barrier(len(shapes), timeout=30), {}
    workers = [
        Worker(dp=len(shapes), transport=TwinTransport(barrier=barrier, parts=parts, dp_rank=rank))
        for rank in range(len(shapes))
    ]
    denominator = ROWS * len(shapes)
    with ThreadPoolExecutor(len(shapes)) as pool:
        results = [
            pool.submit(worker.run, shapes=own, rows=denominator) for worker, own in zip(workers, shapes, strict=True)
        ]
    for result in results:
        result.result()
    return workers


def test_replicas_keep_one_and_the_same_statistics_of_the_whole_batch() -> None:
    workers = run_twins(SHAPES, SHAPES)
    assert_same_bits(workers[1].state(), workers[0].state())
    plain = Plain(workers[0].plain)
    plain.step(workers, step=1, rate=0.1)
    assert_follows(workers[0], plain)


def test_replica_without_rows_moves_with_the_others() -> None:
    workers = run_twins(SHAPES, tuple(Shape(0, shape.width) for shape in SHAPES))
    assert_same_bits(workers[1].statistics(), workers[0].statistics())
    alone = Worker()
    alone.run()
    assert_same_bits(workers[1].statistics(), alone.statistics())


@pytest.mark.parametrize(
    "recompute", [Recompute(None), Recompute(1), Recompute(None, keeps_last=True)], ids=["full", "partial", "but last"]
)
def test_forward_that_is_done_again_counts_once(recompute: Recompute) -> None:
    kept, again = Worker(), Worker(recompute=recompute)
    for worker in (kept, again):
        worker.run()
    assert_same_bits(again.state(), kept.state())
    assert again.state()["layers.0.norm.num_batches_tracked"] == 1


@pytest.mark.parametrize("words", ["F0 B0 F1 B1 F2 B2 F3 B3", "F3 F0 B3 F2 B0 B2"])
def test_schedule_does_not_change_the_bits(words: str) -> None:
    worker, other = Worker(), Worker()
    worker.run()
    other.run(words)
    assert_same_bits(other.statistics(), worker.statistics())


@pytest.mark.parametrize("recompute", [None, Recompute(None)])
def test_cut_does_not_change_the_bits(recompute: Recompute | None) -> None:
    whole, halves = Worker(), Worker(pp=2, recompute=recompute)
    for step in (1, 2):
        for worker in (whole, halves):
            worker.run(step=step)
    assert_same_bits(halves.state(), whole.state())


def test_evaluation_reads_the_statistics_and_changes_nothing() -> None:
    worker = Worker()
    worker.run()
    before = worker.state()
    result = worker.run("F0 F2 F3", phase=Phase.EVALUATE, step=7)
    assert_same_bits(worker.state(), before)
    worker.plain.load_state_dict(before)
    worker.plain.eval()
    batches = [worker.rows.get(setting(shapes=SHAPES, step=7), m) for m in (0, 2, 3)]
    expected = torch.cat([worker.plain(batch.input_ids_BL) for batch in batches])
    torch.testing.assert_close(torch.tensor([row.outputs for row in result.rows]), expected)


def test_evaluation_within_a_step_is_not_counted() -> None:
    worker, disturbed = Worker(), Worker()
    worker.run()
    disturbed.run("F0 F1", ends=False)
    disturbed.run("F0 F2 F3", phase=Phase.EVALUATE, step=7)
    disturbed.run("F2 F3 B0 B1 B2 B3")
    assert_same_bits(disturbed.state(), worker.state())


FP16 = Precision(
    compute=ComputeType.FP16,
    loss_scale=LossScaleSettings(
        initial=2.0**24, growth_factor=2.0, backoff_factor=2.0**-20, growth_interval=100, min=1.0, max=2.0**24
    ),
)
"""A first scale that no gradient in fp16 can bear, and a second one that all can."""


def test_step_that_is_skipped_leaves_the_statistics_as_they_were() -> None:
    worker, clean = Worker(precision=FP16), Worker(precision=FP16)
    before = worker.state()
    assert worker.run().skipped
    assert_same_bits(worker.state(), before)
    assert worker.run(step=2).skipped is False
    # What the skipped step saw is gone: the next one leaves what it leaves alone.
    clean.engine._update._scale.factor = 16.0
    assert clean.run(step=2).skipped is False
    assert_same_bits(worker.statistics(), clean.statistics())
    assert worker.state()["layers.0.norm.num_batches_tracked"] == 1


@pytest.mark.parametrize("compute", [ComputeType.BF16, ComputeType.FP16])
def test_statistics_are_fp32_whatever_layers_compute_in(compute: ComputeType) -> None:
    """The first layer reads the embeddings, rounded once."""
    scale = LossScaleSettings(
        initial=16.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=100, min=1.0, max=16.0
    )
    worker = Worker(precision=Precision(compute=compute, loss_scale=scale if compute is ComputeType.FP16 else None))
    layer = nn.BatchNorm1d(HIDDEN)
    ids = [worker.rows.get(setting(shapes=SHAPES), m).input_ids_BL.flatten() for m in (0, 2, 3)]
    layer(worker.plain.embeddings.weight.detach().to(compute.dtype)[torch.cat(ids)].float())
    worker.run()
    found = worker.state()
    for name, expected in layer.named_buffers():
        torch.testing.assert_close(found[f"layers.0.norm.{name}"], expected, rtol=2e-6, atol=1e-6)
    result = worker.run("F0 F2 F3", phase=Phase.EVALUATE)
    assert torch.tensor([row.outputs for row in result.rows]).isfinite().all()


def test_step_without_rows_moves_nothing() -> None:
    worker = Worker(momentum=None)
    before = worker.state()
    worker.run("F0 B0", shapes=(Shape(0, 4),))
    assert_same_bits(worker.statistics(), {name: before[name] for name in worker.statistics()})


def test_layer_that_tracks_nothing_is_left_to_torch() -> None:
    worker = Worker(track_running_stats=False)
    assert worker.statistics() == {}
    worker.run()
    assert not any("forward" in vars(layer.norm) for layer in worker.model.model.layers)
    assert worker.transport.sums == []


def test_model_without_such_layers_is_left_alone_and_adds_nothing_over_replicas() -> None:
    model = load_tiny()
    statistics = RunningStatistics(model)
    statistics.add_up(lambda sums: pytest.fail("there is nothing to add"))
    statistics.move()
    assert not any("forward" in vars(module) for module in model.model.modules())


def test_layer_that_is_applied_twice_to_a_microbatch_is_refused_by_name() -> None:
    embeddings, first, second, head = BLOCKS
    twice = Block(first.name, first.modules, lambda model, h, rows: first.call(model, first.call(model, h, rows), rows))
    worker = Worker(blocks=(embeddings, twice, second, head))
    text = r"layers\.0\.norm keeps running statistics and is applied more than once to microbatch 0"
    with pytest.raises(CommandFailed, match=text):
        worker.run("F0", ends=False)
