"""What the coordinator counts for Prometheus. Each fact is counted here or in another service, never in both."""

import contextlib
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coordinator.membership import SlotState
from coordinator.records import JobState, StepRecord

_STEP_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_CHECKPOINT_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class RunMetrics:
    """The series of runs, labelled by ``run``; they go when the run ends."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, ["run"], registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, ["run"], registry=registry)

        self._seconds = Histogram(
            "takt_step_seconds",
            "Time between the commits of two steps.",
            ["run"],
            buckets=_STEP_BUCKETS,
            registry=registry,
        )
        self._checkpoint_seconds = Histogram(
            "takt_checkpoint_seconds",
            "Time from the command to save to the complete checkpoint.",
            ["run"],
            buckets=_CHECKPOINT_BUCKETS,
            registry=registry,
        )
        self._failed_checkpoints = counter("takt_checkpoint_failures", "Checkpoints that could not be written.")
        self._steps = counter("takt_steps", "Committed steps.")
        self._skipped = counter("takt_steps_skipped", "Committed steps that left the weights as they were.")
        self._examples = counter("takt_examples", "Rows trained on.")
        self._tokens = counter("takt_tokens", "Tokens trained on, without padding.")
        self._padded_tokens = counter("takt_padded_tokens", "Positions that only padded.")
        self._loss = gauge("takt_loss", "Mean loss of the last step, over its rows or the tokens that count.")
        self._grad_norm = gauge("takt_grad_norm", "Global norm of the last step's gradient before clipping.")
        self._learning_rate = gauge("takt_learning_rate", "Learning rate of the last step.")
        self._bubble = gauge("takt_plan_bubble_ratio", "Idle share of a step that the plan cannot avoid.")
        # Not counted yet; the name is there so that rules and panels can already ask for it.
        Counter("takt_job_restarts", "Attempts after the first.", ["run", "reason"], registry=registry)

    def planned(self, run: str, *, bubble_fraction: float) -> None:
        """A run has its plan."""
        self._bubble.labels(run).set(bubble_fraction)

    def committed(self, run: str, step: StepRecord) -> None:
        """A step was committed."""
        self._seconds.labels(run).observe(step.seconds)
        self._steps.labels(run).inc()
        self._skipped.labels(run).inc(step.skipped)
        self._examples.labels(run).inc(step.examples)
        self._tokens.labels(run).inc(step.tokens)
        self._padded_tokens.labels(run).inc(step.padded_tokens)
        self._learning_rate.labels(run).set(step.learning_rate)
        if step.loss is not None:
            self._loss.labels(run).set(step.loss)
        if step.grad_norm is not None:
            self._grad_norm.labels(run).set(step.grad_norm)

    def checkpointed(self, run: str, *, seconds: float) -> None:
        """A checkpoint is complete; ``seconds`` since it was asked for."""
        self._checkpoint_seconds.labels(run).observe(seconds)

    def checkpoint_failed(self, run: str) -> None:
        """A checkpoint could not be written."""
        self._failed_checkpoints.labels(run).inc()

    def ended(self, run: str) -> None:
        """Drop the series of a run."""
        for metric in (
            *(
                self._seconds,
                self._checkpoint_seconds,
                self._failed_checkpoints,
                self._bubble,
                self._steps,
                self._skipped,
            ),
            *(self._examples, self._tokens, self._padded_tokens, self._loss, self._grad_norm, self._learning_rate),
        ):
            with contextlib.suppress(KeyError):  # a run may end before its first step
                metric.remove(run)


class Census(Collector):
    """Counts jobs and slots by state at each scrape; a state that nobody is in counts 0."""

    def __init__(
        self,
        *,
        jobs: Callable[[], Mapping[JobState, int]],
        slots: Callable[[], Mapping[SlotState, int]],
    ) -> None:
        """Count what ``jobs`` and ``slots`` return; they are called from the scraping thread."""
        self._jobs = jobs
        self._slots = slots

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return takt_jobs and takt_workers."""
        jobs = GaugeMetricFamily("takt_jobs", "Jobs in the store by state.", labels=["state"])
        for state, count in self._jobs().items():
            jobs.add_metric([state.value], count)
        workers = GaugeMetricFamily("takt_workers", "Slots of stage workers by state.", labels=["state"])
        for slot_state, count in self._slots().items():
            workers.add_metric([slot_state.value], count)
        return jobs, workers
