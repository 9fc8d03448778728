"""Losses and gradients that are not finite: one verdict for all stages and replicas."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.local_case import LocalCase
from benchmarks.local_run import load_part
from stage_worker.comm_place import Place
from stage_worker.engine.failure import CommandFailed, NonFiniteError
from stage_worker.models.loaded import LoadedModel
from tests.unit.joined_workers import Outcome, Tamper, differing, run_joined, tiny_case

LENGTHS = ((5, 3, 7, 4, 6, 2, 3, 5),) * 4
STAGE_0 = "bert.encoder.layer.0.output.dense.weight"
STAGE_1 = "classifier.weight"


def case(precision: str, *, pp: int = 2, dp: int = 1, initial: float = 65536.0, least: float = 1.0) -> LocalCase:
    """Return four steps with rates 4, 3, 2, 1, weights recorded, and weights that decay even without a gradient."""
    scale = {
        "initial": initial,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 1000,
        "min": least,
        "max": 2.0**32,
    }
    return tiny_case(
        pp=pp,
        dp=dp,
        precision=precision,
        loss_scale=scale if precision == "fp16" else None,
        lengths=LENGTHS,
        learning_rate=4e-3,
        lr_schedule="linear",
        weight_decay=0.1,
        records_gradients=True,
    )


def gradient_becomes(value: float, name: str, *, dp_rank: int, steps: tuple[int, ...] = (1,)) -> Tamper:
    """Put ``value`` into the gradient of ``name`` in the first microbatch of some steps, on one replica."""

    def tamper(place: Place, model: LoadedModel) -> None:
        if place.dp_rank != dp_rank or name not in model.held:
            return
        microbatches = iter(range(1000))  # two a step

        def change(gradient: torch.Tensor) -> torch.Tensor:
            changed = gradient.clone()
            step, microbatch = divmod(next(microbatches), 2)
            if step + 1 in steps and microbatch == 0:
                changed.view(-1)[3] = value
            return changed

        model.model.get_parameter(name).register_hook(change)

    return tamper


def loss_becomes_infinite(*, dp_rank: int, microbatch: int) -> Tamper:
    """Let a row's own class be impossible in one microbatch of the first step: its gradients stay finite."""

    def tamper(place: Place, model: LoadedModel) -> None:
        if place.dp_rank != dp_rank or STAGE_1 not in model.held:
            return
        calls = iter(range(1000))

        def change(module: Any, arguments: Any, logits_BC: torch.Tensor) -> torch.Tensor:
            if next(calls) != microbatch:
                return logits_BC
            return logits_BC.masked_fill(torch.arange(2) == torch.ones(len(logits_BC), 1), -torch.inf)

        model.model.classifier.register_forward_hook(change)

    return tamper


def initial_weights(outcome: Outcome, of: LocalCase) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in load_part(of, outcome.place).held.items()}


def recorded(outcome: Outcome, step: int) -> dict[str, torch.Tensor]:
    prefix = f"weight/{step}/"
    return {k.removeprefix(prefix): v for k, v in outcome.result.tensors.items() if k.startswith(prefix)}


INJECTED = ("inf in a gradient of stage 0", "nan in a gradient of the last stage", "inf in the last replica's loss")


def injected(what: str, dp: int) -> Tamper:
    if what == INJECTED[0]:
        return gradient_becomes(torch.inf, STAGE_0, dp_rank=0)
    if what == INJECTED[1]:
        return gradient_becomes(torch.nan, STAGE_1, dp_rank=0)
    return loss_becomes_infinite(dp_rank=dp - 1, microbatch=1)


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("what", INJECTED)
def test_overflow_anywhere_skips_the_step_everywhere_and_halves_the_scale(what: str, dp: int) -> None:
    of = case("fp16", dp=dp)
    outcomes = run_joined(of, tamper=injected(what, dp))
    assert [outcome.error for outcome in outcomes] == [None] * 2 * dp
    for outcome in outcomes:
        steps = outcome.result.steps
        assert [step.skipped for step in steps] == [True, False, False, False]
        assert [step.loss_scale for step in steps] == [65536.0, 32768.0, 32768.0, 32768.0]
        assert [step.learning_rate for step in steps] == pytest.approx([4e-3, 4e-3, 3e-3, 2e-3])
        assert [step.grad_norm is None for step in steps] == [True, False, False, False]
        assert [step.step for step in steps] == [1, 2, 3, 4]
        before = initial_weights(outcome, of)
        assert differing(recorded(outcome, 1), before) == []
        assert len(differing(recorded(outcome, 2), before)) == len(before)
        counts = {
            k: v.item() for k, v in outcome.result.tensors.items() if k.startswith("moment/") and k.endswith(".step")
        }
        assert set(counts.values()) == {3.0}


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("what", INJECTED)
def test_without_a_loss_scale_all_workers_end_with_the_place_and_no_weight_moves(
    what: str, precision: str, dp: int
) -> None:
    of = case(precision, dp=dp)
    outcomes = run_joined(of, tamper=injected(what, dp))
    microbatch = 1 if "loss" in what else None
    stage, name = (0, STAGE_0) if "stage 0" in what else (1, STAGE_1)
    for outcome in outcomes:
        failure = outcome.error
        assert isinstance(failure, CommandFailed)
        assert isinstance(failure.cause, NonFiniteError)
        assert (failure.step, failure.stage, failure.microbatch) == (1, stage, microbatch)
        text = (
            f"loss of microbatch {microbatch} on stage 1" if "loss" in what else f"gradient of {name} on stage {stage}"
        )
        assert f"the {text} in step 1 is not finite" in str(failure)
        elsewhere = "loss" in what and outcome.place.dp_rank < dp - 1
        assert str(failure).endswith(" in another replica") is elsewhere
        assert differing(outcome.weights(), initial_weights(outcome, of)) == []


@pytest.mark.parametrize("dp", [1, 2])
def test_overflow_at_the_lowest_scale_ends_the_job_and_says_what_to_do(dp: int) -> None:
    of = case("fp16", dp=dp, initial=4.0, least=2.0)
    outcomes = run_joined(of, tamper=gradient_becomes(torch.inf, STAGE_0, dp_rank=0, steps=(1, 2)))
    for outcome in outcomes:
        failure = outcome.error
        assert isinstance(failure, CommandFailed)
        assert isinstance(failure.cause, NonFiniteError)
        assert (failure.step, failure.stage) == (2, 0)
        assert "train.loss_scale.min lets it be, 2; train in bf16 or fp32, or allow a lower one" in str(failure)
        assert differing(outcome.weights(), initial_weights(outcome, of)) == []


@pytest.mark.parametrize("dp", [1, 2])
def test_overflow_in_every_step_ends_the_job_at_the_last_one(dp: int) -> None:
    """Else a model that was never trained would be handed out as one that was."""
    outcomes = run_joined(
        of := case("fp16", dp=dp), tamper=gradient_becomes(torch.inf, STAGE_0, dp_rank=0, steps=(1, 2, 3, 4))
    )
    for outcome in outcomes:
        failure = outcome.error
        assert isinstance(failure, CommandFailed)
        assert isinstance(failure.cause, NonFiniteError)
        assert (failure.step, failure.stage) == (4, 0)
        assert "not one update was made, although the loss scale fell to 8192; start with a lower" in str(failure)
        assert differing(outcome.weights(), initial_weights(outcome, of)) == []


def test_overflow_in_the_last_step_after_an_update_is_skipped_like_any_other() -> None:
    tamper = gradient_becomes(torch.inf, STAGE_0, dp_rank=0, steps=(1, 3, 4))
    for outcome in run_joined(case("fp16"), tamper=tamper):
        assert outcome.error is None
        assert [step.skipped for step in outcome.result.steps] == [True, False, True, True]


def test_scale_grows_again_alike_on_all_workers() -> None:
    of = case("fp16", dp=2)
    assert of.loss_scale is not None
    of = replace(of, loss_scale=of.loss_scale | {"growth_interval": 2})
    for outcome in run_joined(of, tamper=gradient_becomes(-torch.inf, STAGE_0, dp_rank=1)):
        assert [step.loss_scale for step in outcome.result.steps] == [65536.0, 32768.0, 32768.0, 65536.0]
