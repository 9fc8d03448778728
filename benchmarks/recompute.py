"""What recomputation saves and costs on one stage: bytes kept for the backward, seconds of a step.

    python -m benchmarks.recompute --rounds 9

One stage of a BERT, in the middle of a pipeline, goes through a gpipe step: the forwards of all microbatches, then
their backwards. Bytes are those of the storages that forwards save for backwards, parameters left out, at the end of
the last forward. Each round times every setting once, the order turned by one each time, so that a machine that gets
slower favours none; ratios are against `none` of the same round. The promise for `full` is one more forward
and a third of the bytes at most; exits with 1 where it is not kept.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.local_live import LiveActivations
from stage_worker.engine.commands import Command, Op
from stage_worker.engine.ledger import Ledger
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.stage import Stage
from stage_worker.engine.weights import Weights
from stage_worker.models.config import TaskNeeds, fit_to_task, new_config
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.loading import load_model
from stage_worker.models.microbatch import Microbatch
from stage_worker.models.slices import StageSlice

STAGE = 1
SETTINGS = {"none": Recompute(), "half": Recompute(4), "full": Recompute(None)}
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the stage and its microbatches."""

    layers: int
    hidden_size: int
    rows: int
    width: int
    microbatches: int


class Case:
    """One setting, ready to run steps."""

    def __init__(self, sizes: Sizes, recompute: Recompute) -> None:
        self._sizes = sizes
        self.model = _load(sizes)
        self._stage = Stage(
            self.model,
            Weights(self.model, dtype=torch.float32),
            stage=STAGE,
            seeds=None,
            recompute=recompute,
            ledger=Ledger(),
        )
        self._gradient_BLD = torch.randn(sizes.rows, sizes.width, sizes.hidden_size)

    def _prepare(self, batch: Microbatch) -> Inputs:
        return Inputs(batch, self.model.family.context(self.model.config, batch.attention_mask_BL, torch.float32))

    def forward(self, microbatch: int) -> None:
        """Do one microbatch's forward."""
        sizes = self._sizes
        mask_BL = torch.ones(sizes.rows, sizes.width, dtype=torch.long)
        mask_BL[:, -1] = 0  # padded, as rows of real text are
        batch = Microbatch(tuple(range(sizes.rows)), None, None, mask_BL, None)
        h_BLD = torch.randn_like(self._gradient_BLD)
        prepare = partial(self._prepare, batch)
        self._stage.forward(prepare(), h_BLD, prepare=prepare, step=1, microbatch=microbatch, is_last_microbatch=False)

    def backward(self, microbatch: int) -> None:
        """Do one microbatch's backward."""
        self._stage.backward(self._gradient_BLD, microbatch=microbatch)

    def kept_bytes(self) -> int:
        """Return the bytes kept between the last forward of a step and its first backward."""
        live = LiveActivations(self.model)
        every = range(self._sizes.microbatches)
        with live:
            for microbatch in every:
                self.forward(microbatch)
                live.command_done(Command(Op.FORWARD, STAGE, microbatch), microbatch)
        for microbatch in every:
            self.backward(microbatch)
        return live.peak_bytes


def _load(sizes: Sizes) -> LoadedModel:
    needs = TaskNeeds(labels=("no", "yes"), num_labels=2, pad_token_id=0, vocabulary_size=99)
    values = {
        "model_type": "bert",
        "num_hidden_layers": sizes.layers + 2,
        "hidden_size": sizes.hidden_size,
        "num_attention_heads": max(1, sizes.hidden_size // 64),
        "intermediate_size": 4 * sizes.hidden_size,
        "max_position_embeddings": sizes.width,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    config = new_config(values, needs)
    fit_to_task(config, needs, attention="sdpa")
    part = StageSlice(stage=STAGE, first_layer=1, num_layers=sizes.layers, is_first=False, is_last=False)
    layers = (1, sizes.layers, 1)
    return load_model(config, slices=[part], layers_by_stage=layers, folder=None, seed=0, device=_CPU)


def _seconds(call: Callable[[int], None], times: int) -> float:
    start = time.perf_counter()
    for microbatch in range(times):
        call(microbatch)
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--microbatches", type=int, default=8)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = Sizes(chosen.layers, chosen.hidden_size, chosen.rows, chosen.width, chosen.microbatches)
    cases = {name: Case(sizes, recompute) for name, recompute in SETTINGS.items()}
    kept = {name: case.kept_bytes() for name, case in cases.items()}
    names = list(cases)
    ratios: dict[str, list[float]] = {name: [] for name in names}
    forward_shares = []
    for turn in range(chosen.rounds):
        forward, whole = {}, {}
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            forward[name] = _seconds(cases[name].forward, sizes.microbatches)
            whole[name] = forward[name] + _seconds(cases[name].backward, sizes.microbatches)
        forward_shares.append(forward["none"] / whole["none"])
        for name in names:
            ratios[name].append(whole[name] / whole["none"])
    share = statistics.median(forward_shares)
    print(f"{sizes}\na forward is {share:.1%} of a step, so full may cost {1 + share:.3f} + 0.05")
    print(f"{'recompute':<10}{'kept MB':>10}{'less':>8}{'time':>8}{'lowest':>8}{'highest':>8}")
    for name in names:
        less, times = kept["none"] / kept[name], ratios[name]
        print(
            f"{name:<10}{kept[name] / 1e6:>10.2f}{less:>7.1f}x{statistics.median(times):>8.3f}"
            f"{min(times):>8.3f}{max(times):>8.3f}"
        )
    good = 3 * kept["full"] <= kept["none"] and statistics.median(ratios["full"]) <= 1 + share + 0.05
    print("as promised" if good else "NOT AS PROMISED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
