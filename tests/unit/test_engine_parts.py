"""How long embeddings, layers and head are at work: seconds of a clock that only their own modules move on.

In a forward each part's modules move it by the part's number, in a backward by ten times that, and each gradient of a
weight by a hundred times that.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stage_worker.engine.ledger import Activity, Ledger, Span
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.split_backward import WeightWork
from tests.unit.stage_harness import OneStage

EMBEDDINGS, LAYER, HEAD = 1.0, 1000.0, 3.0
MODULES = {
    "bert.embeddings.LayerNorm": EMBEDDINGS,
    "bert.encoder.layer.0.attention.output": LAYER,
    "bert.encoder.layer.1.attention.output": LAYER,
    "classifier": HEAD,
}
ACTIVITIES = {
    "F": Activity.FORWARD,
    "B": Activity.BACKWARD,
    "I": Activity.INPUT_GRADIENT,
    "W": Activity.WEIGHT_GRADIENT,
}


class Watched(OneStage):
    """A stage of a model of two layers whose modules move its ledger's clock."""

    def __init__(self, **changes: Any) -> None:
        self.now = 0.0
        super().__init__(num_hidden_layers=2, ledger=Ledger(clock=lambda: self.now), **changes)
        self.ledger = self.stage._ledger
        self.own = {name: seconds for name, seconds in MODULES.items() if f"{name}.weight" in self.parameters} | {
            name: seconds for name, seconds in MODULES.items() if f"{name}.dense.weight" in self.parameters
        }
        for name, seconds in self.own.items():
            module = self.model.model.get_submodule(name)
            module.register_forward_hook(lambda *_, seconds=seconds: self.move(seconds))
            module.register_full_backward_hook(lambda *_, seconds=seconds: self.move(10 * seconds))

    def move(self, seconds: float) -> None:
        self.now += seconds

    def span(self, word: str) -> Span:
        """Obey a word; return what the ledger knows of it."""
        self.ledger.take_spans()
        with self.ledger.during(ACTIVITIES[word[0]], about=(0, 0)):
            self.obey(word)
        _, span = self.ledger.take_spans()
        return span


def parts(span: Span) -> tuple[float, float, float]:
    """Return seconds of embeddings, layers and head."""
    assert span.end - span.start == span.embeddings + span.layers + span.head, "only modules move the clock"
    return span.embeddings, span.layers, span.head


@pytest.mark.parametrize(
    ("stage", "pp", "embeddings", "layers", "head"),
    [(0, 1, EMBEDDINGS, 2 * LAYER, HEAD), (0, 2, EMBEDDINGS, LAYER, 0.0), (1, 2, 0.0, LAYER, HEAD)],
)
@pytest.mark.parametrize("splits", [False, True])
def test_forward_and_backward_say_what_went_into_embeddings_and_head(
    stage: int, pp: int, embeddings: float, layers: float, head: float, splits: bool
) -> None:
    watched = Watched(stage=stage, pp=pp, splits=splits)
    for microbatch in (0, 1):
        assert parts(watched.span(f"F{microbatch}")) == (embeddings, layers, head)
    for microbatch in (0, 1):
        assert parts(watched.span(f"B{microbatch}")) == (10 * embeddings, 10 * layers, 10 * head)


def counted(gradient: Callable[..., torch.Tensor], watched: Watched) -> Callable[..., torch.Tensor]:
    names = {id(parameter): name for name, parameter in watched.parameters.items()}

    def call(work: WeightWork, parameter: torch.Tensor) -> torch.Tensor:
        name = names.get(id(parameter), "")
        if name.endswith("attention.output.dense.weight"):
            watched.move(100 * LAYER)
        if name == "classifier.weight":
            watched.move(100 * HEAD)
        return gradient(work, parameter)

    return call


def test_both_halves_of_a_backward_say_what_went_into_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(stage=0, pp=1, splits=True)
    monkeypatch.setattr(WeightWork, "gradient", counted(WeightWork.gradient, watched))
    watched.span("F0")
    assert parts(watched.span("I0")) == (10 * EMBEDDINGS, 20 * LAYER, 10 * HEAD)
    assert parts(watched.span("W0")) == (0.0, 200 * LAYER, 100 * HEAD)


@pytest.mark.parametrize(("recompute", "again"), [(Recompute(None), HEAD), (Recompute(2), 0.0)])
def test_what_is_computed_again_goes_to_its_part(recompute: Recompute, again: float) -> None:
    """All of it, or the embeddings and both layers."""
    watched = Watched(stage=0, pp=1, splits=False, recompute=recompute)
    assert parts(watched.span("F0")) == (EMBEDDINGS, 2 * LAYER, HEAD)
    assert parts(watched.span("B0")) == (11 * EMBEDDINGS, 22 * LAYER, 10 * HEAD + again)


def test_stage_of_layers_alone_has_no_other_parts() -> None:
    one = OneStage(stage=1, pp=3, splits=True, num_hidden_layers=3, ledger=(ledger := Ledger()))
    for word in ("F0", "I0", "W0", "F1", "B1"):
        with ledger.during(ACTIVITIES[word[0]], about=(1, 0)):
            one.obey(word)
    spans = [span for span in ledger.take_spans() if span.about is not None]
    assert len(spans) == 5
    assert all(0 < span.layers < span.end - span.start for span in spans)
    assert all(span.embeddings == span.head == 0.0 for span in spans)
