"""What a step leaves behind while its commands are obeyed."""

from dataclasses import dataclass, field

import torch

from stage_worker.engine.commands import StepSetting
from stage_worker.engine.exchange import Exchange
from stage_worker.engine.result import RowOutput, StepResult


@dataclass(slots=True, kw_only=True)
class OpenStep:
    """One step between its first command and its last."""

    setting: StepSetting
    exchange: Exchange
    holds_last_stage: bool
    """Whether losses and outputs are made here."""
    losses: dict[int, torch.Tensor] = field(default_factory=dict)
    """Sum of the losses by microbatch, not scaled, still on the device."""
    outputs: dict[int, tuple[RowOutput, ...]] = field(default_factory=dict)
    """Rows of an evaluation by microbatch."""
    peak_in_flight: int = 0
    grad_norm: float | None = None
    learning_rate: float = 0.0
    loss_scale: float | None = None
    skipped: bool = False

    def loss_sums(self) -> tuple[float, ...]:
        """Return the sum of each microbatch's losses, 0 where it has no rows; nothing on other workers."""
        if not self.holds_last_stage:
            return ()
        by_microbatch = {m: float(loss) for m, loss in self.losses.items()}
        return tuple(by_microbatch.get(m, 0.0) for m in range(len(self.setting.microbatches)))

    def result(self, *, last_seq: int) -> StepResult:
        """Return what is reported of the step."""
        return StepResult(
            phase=self.setting.phase,
            step=self.setting.step,
            last_seq=last_seq,
            loss_sums=self.loss_sums(),
            grad_norm=self.grad_norm,
            learning_rate=self.learning_rate,
            loss_scale=self.loss_scale,
            skipped=self.skipped,
            peak_in_flight=self.peak_in_flight,
            sent_bytes=self.exchange.sent_bytes,
            received_bytes=self.exchange.received_bytes,
            transfers=self.exchange.transfers(),
            rows=tuple(row for m in sorted(self.outputs) for row in self.outputs[m]),
        )
