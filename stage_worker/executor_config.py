"""What an executor is started with, before it knows of any job."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorConfig:
    """Its slot's settings; the agent passes them on."""

    coordinator: str
    """host:port to dial."""
    state_dir: Path
    advertise: str
    """Address of this machine that other workers reach."""
    device: str
    transport: str
    orphan_seconds: float
    """How long a coordinator that does not answer is dialled."""
    record_fd: int
    """Descriptor of the record that is shared with the agent."""
