"""What every run of a coordinator works with."""

from dataclasses import dataclass

from coordinator.agents import Agents
from coordinator.data_client import DataClient
from coordinator.journal import Journal
from coordinator.metrics import RunMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What every run of this coordinator works with."""

    agents: Agents
    data: DataClient
    journal: Journal
    metrics: RunMetrics
    strict: bool
    """One command at a time."""
    credit: int
    """Steps that workers may be ahead of the last commit."""
