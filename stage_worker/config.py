"""The settings of one worker slot; every command-line option ends here."""

import ipaddress
import math
import sys
from dataclasses import dataclass
from pathlib import Path

DEVICES = "cpu, cuda, cuda:N"
TRANSPORTS = ("auto", "gloo", "nccl")


class ConfigError(ValueError):
    """A setting that cannot be; the text names the option, its value and the rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What one agent was started with."""

    coordinator: str
    """host:port to dial."""
    state_dir: Path
    """Folder that coordinator, agents and data service see at the same path."""
    slot: int
    """Number of this slot on the host, from 0; (host, slot) is unique."""
    advertise: str
    """Host name or address that other workers reach this one by."""
    device: str
    transport: str
    metrics_port: int
    """Port of /metrics, /livez and /readyz; 0 takes any."""
    standby: bool
    """Whether an executor is kept warm: imported, without work."""
    wait_seconds: float
    """How long the agent goes on dialling a coordinator that does not answer."""
    orphan_seconds: float
    """How long an executor may go on whose coordinator was lost."""
    allow_roots: tuple[Path, ...] = ()
    """Folders that a job's model must lie under; none: the default, which is / on loopback and nothing elsewhere."""
    insecure: bool = False
    """Whether other machines may reach this one without a password."""

    def __post_init__(self) -> None:
        if self.slot < 0:
            raise ConfigError(f"--slot is {self.slot}, need 0 or more")
        if not 0 <= self.wait_seconds < math.inf:
            raise ConfigError(f"--wait-seconds is {self.wait_seconds:g}, need a finite number, 0 or more")
        if not 0 <= self.orphan_seconds < math.inf:
            raise ConfigError(f"--orphan-seconds is {self.orphan_seconds:g}, need a finite number, 0 or more")
        if not 0 <= self.metrics_port <= 65535:
            raise ConfigError(f"--metrics-port is {self.metrics_port}, need 0 to 65535")
        if self.transport not in TRANSPORTS:
            raise ConfigError(f"--transport is {self.transport!r}, need one of {', '.join(TRANSPORTS)}")
        kind, _, number = self.device.partition(":")
        if kind not in ("cpu", "cuda") or (number and not number.isdigit()) or (kind == "cpu" and number):
            raise ConfigError(f"--device is {self.device!r}, need one of {DEVICES}")
        host, _, port = self.coordinator.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ConfigError(f"--coordinator is {self.coordinator!r}, need HOST:PORT with a port from 1 to 65535")
        if not self.is_local and not self.insecure:
            raise ConfigError(
                f"--advertise is {self.advertise!r}: other machines could reach this worker, and nothing protects "
                "it; advertise 127.0.0.1, or pass --insecure to accept that"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the slot."""
        try:
            return ipaddress.ip_address(self.advertise).is_loopback
        except ValueError:
            return self.advertise == "localhost"

    @property
    def http_host(self) -> str:
        """Where the HTTP endpoint listens; probes and scrapes come from anywhere once the slot is not local."""
        return "127.0.0.1" if self.is_local else "0.0.0.0"

    @property
    def readable_roots(self) -> tuple[Path, ...]:
        """Folders that models may be read from."""
        if self.allow_roots or not self.is_local:
            return self.allow_roots
        return (Path("/"),)

    def executor_command(self) -> tuple[str, ...]:
        """Return the program that runs an executor for this slot."""
        return (
            *(sys.executable, "-m", "stage_worker", "executor"),
            *("--coordinator", self.coordinator),
            *("--state-dir", str(self.state_dir)),
            *("--advertise", self.advertise),
            *("--device", self.device),
            *("--transport", self.transport),
            *("--orphan-seconds", str(self.orphan_seconds)),
        )
