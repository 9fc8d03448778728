"""The factor of the loss: how it changes, and that nothing of it is left in a gradient."""

import functools

import pytest
import torch

from stage_worker.engine.loss_scale import LossScale, LossScaleSettings
from tests.unit.joined_workers import merged, run_joined, tiny_case


def settings(**changes: float) -> LossScaleSettings:
    values = {"initial": 65536, "growth_factor": 2, "backoff_factor": 0.5, "growth_interval": 3, "min": 1, "max": 2**32}
    return LossScaleSettings(**values | changes)  # type: ignore[arg-type]


def factors(scale: LossScale, steps: str) -> list[float]:
    """Return the factor behind each step: ``.`` is clean, ``x`` overflows."""
    found = []
    for step in steps:
        if step == "x":
            scale.note_overflow()
        else:
            scale.note_update()
        found.append(scale.factor)
    return found


def test_scale_halves_on_overflow_and_doubles_after_the_interval_of_clean_steps() -> None:
    scale = LossScale(settings())
    assert scale.factor == 65536
    assert factors(scale, "x") == [32768]
    assert factors(scale, "...") == [32768, 32768, 65536]
    assert factors(scale, "...") == [65536, 65536, 131072]


def test_scale_counts_clean_steps_anew_after_an_overflow() -> None:
    scale = LossScale(settings(initial=8))
    assert factors(scale, "..x..") == [8, 8, 4, 4, 4]
    assert scale.clean_steps == 2
    assert factors(scale, ".") == [8]
    assert scale.clean_steps == 0


def test_scale_stays_between_its_bounds() -> None:
    scale = LossScale(settings(initial=6, min=4, max=10))
    assert factors(scale, "...") == [6, 6, 10]
    assert factors(scale, "...") == [10, 10, 10]
    assert not scale.is_lowest
    assert factors(scale, "xx") == [5, 4]
    assert scale.is_lowest
    assert factors(scale, "x") == [4]


def test_scale_takes_factors_that_are_no_powers_of_two() -> None:
    scale = LossScale(settings(initial=1000, growth_factor=1.5, backoff_factor=0.1, growth_interval=1))
    assert factors(scale, ".x.") == pytest.approx([1500, 150, 225])


def scaled(**changes: float) -> dict[str, float]:
    values = settings(**changes)
    return {name: getattr(values, name) for name in values.__slots__}


@functools.cache
def moved(precision: str, initial: float | None) -> dict[str, torch.Tensor]:
    """Return weights and moments after two clipped steps on two workers; None scales nothing."""
    scale = scaled(initial=initial) if initial is not None else None
    case = tiny_case(
        pp=2, precision=precision, loss_scale=scale, lengths=((5, 3, 7, 4), (2, 8, 3, 6)), max_grad_norm=0.05
    )
    outcomes = run_joined(case)
    return (
        merged(outcomes, "final/")
        | merged(outcomes, "moment/")
        | {
            f"norm of step {step.step}": torch.tensor(step.grad_norm, dtype=torch.float64)
            for step in outcomes[0].result.steps
        }
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("initial", [2.0**-3, 2.0**16])
def test_scale_that_is_a_power_of_two_changes_no_bit_where_the_type_has_the_range(
    precision: str, initial: float
) -> None:
    """Gradients, the norm, the clipping by it and the update are all of gradients without the scale."""
    expected, found = moved(precision, None), moved(precision, initial)
    assert found.keys() == expected.keys()
    assert [name for name, tensor in expected.items() if not torch.equal(tensor, found[name])] == []


def test_scale_that_is_no_power_of_two_changes_rounding_only() -> None:
    expected, found = moved("fp32", None), moved("fp32", 1000.0)
    norms = [name for name in expected if name.startswith("norm")]
    assert [found[name].item() for name in norms] == pytest.approx([expected[name].item() for name in norms], rel=1e-6)
    assert any(not torch.equal(tensor, found[name]) for name, tensor in expected.items())
    moments = [name for name in expected if name.endswith("exp_avg")]
    apart = sum((expected[name] - found[name]).double().square().sum() for name in moments)
    assert (apart / sum(expected[name].double().square().sum() for name in moments)).sqrt().item() < 1e-6


def test_scale_keeps_fp16_gradients_out_of_underflow() -> None:
    """A loss of 2**-20 of itself has gradients below 6e-8, the least that fp16 has."""

    def norm_and_zeros(initial: float) -> tuple[float, int]:
        case = tiny_case(
            pp=2, precision="fp16", loss_scale=scaled(initial=initial, min=2.0**-20), records_gradients=True
        )
        outcomes = run_joined(case)
        norm = outcomes[0].result.steps[0].grad_norm
        assert norm is not None
        gradients = merged(outcomes, "gradient/1/").values()
        return norm, sum(int((gradient == 0).sum()) for gradient in gradients)

    (fp32,) = run_joined(tiny_case())
    exact = fp32.result.steps[0].grad_norm
    assert norm_and_zeros(65536.0)[0] == pytest.approx(exact, rel=0.01)
    lost_norm, lost = norm_and_zeros(2.0**-20)
    assert lost > 2 * norm_and_zeros(65536.0)[1]
    assert lost_norm != pytest.approx(exact, rel=0.01)
