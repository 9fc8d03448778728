"""What the data service tells Prometheus; no label names a run, so no series outlives one."""

from prometheus_client import CollectorRegistry, Counter, Histogram

BUILD_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Seconds; a microbatch of usual size takes well under a millisecond."""


class DataMetrics:
    """Counts microbatches and the time that building them takes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._batches = Counter("takt_data_batches", "Microbatches that were built.", registry=registry)
        self._seconds = Histogram(
            "takt_data_build_seconds", "Time to build one microbatch.", buckets=BUILD_BUCKETS, registry=registry
        )

    def built(self, *, seconds: float) -> None:
        """Count one microbatch."""
        self._batches.inc()
        self._seconds.observe(seconds)
