"""The end of a training step: whole gradients, the vote on them, the update."""

from collections.abc import Callable

import torch

from stage_worker.engine.agreed import Agreed
from stage_worker.engine.failure import NonFiniteError
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.engine.loss_scale import LossScale, LossScaleSettings
from stage_worker.engine.norm import Norm, clip
from stage_worker.engine.open_step import OpenStep
from stage_worker.engine.optimizer import Optimizer, OptimizerSettings, Stored, decayed_names
from stage_worker.engine.replicas import add_over_replicas
from stage_worker.engine.running_statistics import RunningStatistics
from stage_worker.engine.shared import SharedSums
from stage_worker.engine.transport import Transport
from stage_worker.engine.weights import Weights
from stage_worker.models.loaded import LoadedModel


class Update:
    """Turns what the backwards of a step left into new weights; all workers do the same, or none does anything.

    Holds the state that every worker has alike, which only the vote changes.
    """

    def __init__(
        self,
        model: LoadedModel,
        weights: Weights,
        *,
        shared: SharedSums,
        statistics: RunningStatistics,
        optimizer: OptimizerSettings,
        loss_scale: LossScaleSettings | None,
        dp: int,
        transport: Transport,
        ledger: Ledger,
        before_update: Callable[[], None],
    ) -> None:
        """Take charge of the masters of ``weights``.

        ``loss_scale`` is set for fp16 only; ``before_update`` is called before weights and moments change.
        """
        self._before_update = before_update
        self._weights = weights
        self._shared = shared
        self._statistics = statistics
        self._owned = {stage: model.owned(stage) for stage in model.stages}
        self._optimizer = Optimizer(weights.masters, decayed=decayed_names(model.model), settings=optimizer)
        self._max_grad_norm = optimizer.max_grad_norm
        self._norm = Norm(model.uses.names, num_stages=model.num_stages)
        self._scale = LossScale(loss_scale) if loss_scale is not None else None
        self._last_stage = model.num_stages - 1
        self._dp = dp
        self._transport = transport
        self._ledger = ledger

    @property
    def agreed(self) -> Agreed:
        """What every worker has alike after the last step."""
        updates = self._optimizer.updates_applied
        if self._scale is None:
            return Agreed(updates_applied=updates)
        return Agreed(updates_applied=updates, loss_scale=self._scale.factor, clean_steps=self._scale.clean_steps)

    @property
    def loss_factor(self) -> float:
        """What the loss is multiplied by before its backward."""
        return self._scale.factor if self._scale is not None else 1.0

    def optimizer_state(self, stage: int) -> dict[str, torch.Tensor]:
        """Return the optimizer's tensors of the parameters that one own stage answers for."""
        return self._optimizer.state(frozenset(self._owned[stage]))

    def restore(self, agreed: Agreed, stored: Stored) -> None:
        """Go on from a saved state: what all workers had alike, and what ``optimizer_state`` returned of all stages.

        A loss scale that the state does not have begins anew.

        Raises:
            RestoreError: the optimizer's state does not fit.
        """
        self._optimizer.restore(stored, updates_applied=agreed.updates_applied)
        if self._scale is not None and agreed.loss_scale is not None:
            self._scale.restore(factor=agreed.loss_scale, clean_steps=agreed.clean_steps)

    def add_up(self, step: OpenStep) -> None:
        """Give every master the whole gradient of the step: over all uses of a shared one, then over replicas."""
        with self._ledger.during(Activity.REDUCE):
            shared = self._shared.add(step=step.setting.step)
            for name, master in self._weights.masters.items():
                own = self._weights.take(name)
                master.grad = shared[name] if name in shared else next(iter(own.values()), None)
            if self._dp > 1:
                add_over_replicas(self._weights.masters, self._transport.add_over_replicas)
            self._statistics.add_up(self._transport.add_over_replicas)

    def apply(self, step: OpenStep) -> None:
        """Vote on the step; update the weights or leave them; drop the gradients.

        Raises:
            NonFiniteError: on every worker, where a loss or gradient is not finite and no lower loss scale can help.
        """
        with self._ledger.during(Activity.STEP):
            step.learning_rate = self._optimizer.learning_rate
            gradients = [master.grad for master in self._weights.masters.values() if master.grad is not None]
            if self._scale is not None:
                step.loss_scale = self._scale.factor
                for gradient in gradients:
                    gradient.div_(self._scale.factor)
            owned = {
                stage: {name: p.grad for name, p in by_name.items() if p.grad is not None}
                for stage, by_name in self._owned.items()
            }
            verdict = self._norm.vote(owned, step.loss_sums(), self._add_over_stages, step=step.setting.step)
            if self._dp > 1:
                verdict = self._agree(verdict, step)
            if isinstance(verdict, NonFiniteError):
                self._skip(step, verdict)
            else:
                step.grad_norm = verdict
                clip(gradients, norm=verdict, max_norm=self._max_grad_norm)
                self._before_update()
                self._optimizer.apply()
                self._weights.publish()
                self._statistics.move()
                if self._scale is not None:
                    self._scale.note_update()
            self._weights.clear()
            self._statistics.clear()

    def _agree(self, verdict: float | NonFiniteError, step: OpenStep) -> float | NonFiniteError:
        """Return the worst verdict of all replicas; they differ in losses only, for gradients are added up already."""
        own = verdict.microbatch if isinstance(verdict, NonFiniteError) else None
        bad_losses = torch.zeros(len(step.setting.microbatches), dtype=torch.float64)
        if own is not None:
            bad_losses[own] = 1.0
        with self._ledger.during(Activity.REDUCE):
            bad_losses = self._transport.add_over_replicas(bad_losses)
        if own is not None or not bad_losses.any():
            return verdict
        microbatch = int(bad_losses.nonzero()[0])
        return NonFiniteError(
            f"the loss of microbatch {microbatch} on stage {self._last_stage} in step {step.setting.step} "
            "is not finite in another replica",
            stage=self._last_stage,
            microbatch=microbatch,
        )

    def _skip(self, step: OpenStep, error: NonFiniteError) -> None:
        """Leave everything as it is but the loss scale; every worker comes here, or none."""
        if self._scale is None:
            raise error
        if self._scale.is_lowest:
            raise NonFiniteError(
                f"{error}, although the loss scale is as low as train.loss_scale.min lets it be, "
                f"{self._scale.factor:g}; train in bf16 or fp32, or allow a lower one",
                stage=error.stage,
                microbatch=error.microbatch,
            )
        if self._optimizer.is_idle_at_end_of(step.setting.step):
            raise NonFiniteError(
                f"{error}, and so it was in every step of the job: not one update was made, although the loss scale "
                f"fell to {self._scale.factor:g}; start with a lower train.loss_scale.initial, or train for longer",
                stage=error.stage,
                microbatch=error.microbatch,
            )
        step.skipped = True
        self._scale.note_overflow()

    def _add_over_stages(self, vector: torch.Tensor) -> torch.Tensor:
        with self._ledger.during(Activity.REDUCE):
            return self._transport.add_over_stages(vector)
