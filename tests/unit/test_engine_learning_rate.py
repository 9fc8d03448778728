import pytest

from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule


def rates(schedule: LearningRateSchedule, *, warmup_fraction: float, total_steps: int) -> list[float]:
    rate = LearningRate(base=8.0, schedule=schedule, warmup_fraction=warmup_fraction, total_steps=total_steps)
    return [rate.at(updates) for updates in range(total_steps)]


@pytest.mark.parametrize(
    ("warmup_fraction", "total_steps", "expected"),
    [
        (0.2, 10, [0, 4, 8, 7, 6, 5, 4, 3, 2, 1]),
        (0.0, 4, [8, 6, 4, 2]),
        (0.24, 4, [8, 6, 4, 2]),  # 0.96 of a step is none
        (1.0, 4, [0, 2, 4, 6]),
        (0.5, 1, [8]),
    ],
)
def test_linear_rate_rises_then_falls(warmup_fraction: float, total_steps: int, expected: list[float]) -> None:
    found = rates(LearningRateSchedule.LINEAR, warmup_fraction=warmup_fraction, total_steps=total_steps)
    assert found == pytest.approx(expected)


def test_linear_rate_past_the_plan_is_zero() -> None:
    rate = LearningRate(base=8.0, schedule=LearningRateSchedule.LINEAR, warmup_fraction=0.0, total_steps=4)
    assert [rate.at(4), rate.at(5)] == [0.0, 0.0]


def test_constant_rate_has_no_warmup() -> None:
    assert rates(LearningRateSchedule.CONSTANT, warmup_fraction=0.5, total_steps=4) == [8.0] * 4
