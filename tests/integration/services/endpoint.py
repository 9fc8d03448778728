"""A service's /metrics, /livez and /readyz."""

import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

# Whatever proxy the environment names is not for addresses of this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_LIMIT_SECONDS = 10.0


@dataclass(frozen=True)
class Answer:
    """What an endpoint said."""

    status: int
    text: str
    seconds: float


@dataclass(frozen=True)
class Sample:
    """One series and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


def ask(address: str, path: str) -> Answer:
    """Get ``path`` from host:port ``address``."""
    began = time.monotonic()
    try:
        with _OPENER.open(f"http://{address}{path}", timeout=_LIMIT_SECONDS) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    return Answer(status, body.decode(), time.monotonic() - began)


def samples(address: str) -> list[Sample]:
    """Return all series that a service exports now."""
    answer = ask(address, "/metrics")
    assert answer.status == 200
    return [
        Sample(sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    ]


def of_run(found: list[Sample], run: str) -> list[Sample]:
    """Return the series of one run."""
    return [sample for sample in found if sample.labels.get("run") == run]


def total(found: list[Sample], name: str) -> float:
    """Return the sum over all series of one name."""
    values = [sample.value for sample in found if sample.name == name]
    assert values, f"there is no series {name}"
    return sum(values)
