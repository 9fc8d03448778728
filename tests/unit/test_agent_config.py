"""Settings of a worker slot."""

from pathlib import Path
from typing import Any

import pytest

from stage_worker.config import AgentConfig, ConfigError


def config(**changes: Any) -> AgentConfig:
    settings: dict[str, Any] = {
        "coordinator": "127.0.0.1:7700",
        "state_dir": Path("/state"),
        "slot": 0,
        "advertise": "127.0.0.1",
        "device": "cpu",
        "transport": "auto",
        "metrics_port": 7721,
        "standby": True,
        "wait_seconds": 60.0,
        "orphan_seconds": 20.0,
    }
    return AgentConfig(**{**settings, **changes})


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_config_local_slot_reads_any_folder_and_listens_locally(host: str) -> None:
    local = config(advertise=host)
    assert local.readable_roots == (Path("/"),)
    assert local.http_host == "127.0.0.1"


def test_config_slot_that_others_reach_reads_no_folder_by_default() -> None:
    reachable = config(advertise="worker-1.cluster", insecure=True)
    assert reachable.readable_roots == ()
    assert reachable.http_host == "0.0.0.0"


def test_config_slot_that_others_reach_needs_insecure() -> None:
    with pytest.raises(ConfigError, match=r"--advertise is 'worker-1\.cluster'.*--insecure"):
        config(advertise="worker-1.cluster")


def test_config_roots_that_are_named_replace_the_default() -> None:
    assert config(allow_roots=(Path("/models"),)).readable_roots == (Path("/models"),)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:3"])
def test_config_device_is_taken(device: str) -> None:
    assert device in config(device=device).executor_command()


@pytest.mark.parametrize("device", ["", "cpu:1", "cuda:x", "mps"])
def test_config_other_device_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="--device"):
        config(device=device)


@pytest.mark.parametrize("address", ["", "localhost", ":7700", "host:0", "host:99999", "host:http", "host:\u0663"])
def test_config_malformed_coordinator_is_refused_instead_of_waited_for(address: str) -> None:
    with pytest.raises(ConfigError, match=r"--coordinator is .* need HOST:PORT with a port from 1 to 65535"):
        config(coordinator=address)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_config_wait_without_an_end_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="--wait-seconds"):
        config(wait_seconds=seconds)
