"""The HTTP endpoint of a service, tried over a real socket."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from takt.rpc.errors import AddressInUseError
from takt.rpc.metrics import HttpEndpoint, build_info


class Readiness:
    """An answer that a test can change."""

    def __init__(self) -> None:
        self.answer = (True, "all is well")

    def __call__(self) -> tuple[bool, str]:
        return self.answer


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
def address(readiness: Readiness) -> Iterator[str]:
    registry = CollectorRegistry()
    build_info(registry, "0.1.0")
    Gauge("takt_answer", "An answer.", registry=registry).set(42)
    Counter("takt_questions", "Questions.", registry=registry).inc()
    endpoint = HttpEndpoint(registry, host="127.0.0.1", port=0, ready=readiness)
    yield endpoint.start()
    endpoint.close()


def get(address: str, path: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_shows_the_registry_and_the_build(address: str) -> None:
    status, text = get(address, "/metrics")
    assert status == 200
    assert "takt_answer 42.0" in text.splitlines()
    assert 'takt_build_info{version="0.1.0"} 1.0' in text.splitlines()


def test_metrics_counter_is_one_series(address: str) -> None:
    lines = get(address, "/metrics")[1].splitlines()
    assert [line for line in lines if line.startswith("takt_questions")] == ["takt_questions_total 1.0"]


def test_livez_lives_while_readyz_tells_why_it_is_not_ready(address: str, readiness: Readiness) -> None:
    assert get(address, "/readyz") == (200, "all is well\n")
    readiness.answer = (False, "data service 127.0.0.1:7710 does not answer")
    assert get(address, "/readyz") == (503, "data service 127.0.0.1:7710 does not answer\n")
    assert get(address, "/livez") == (200, "alive\n")


def test_unknown_path_is_not_found(address: str) -> None:
    status, text = get(address, "/secret")
    assert status == 404
    assert "/metrics" in text


def test_endpoint_on_a_used_port_is_refused_and_free_after_close(address: str) -> None:
    port = int(address.rpartition(":")[2])
    second = HttpEndpoint(CollectorRegistry(), host="127.0.0.1", port=port, ready=Readiness())
    with pytest.raises(AddressInUseError, match=f"127.0.0.1:{port}"):
        second.start()
    first = HttpEndpoint(CollectorRegistry(), host="127.0.0.1", port=0, ready=Readiness())
    freed = first.start()
    first.close()
    third = HttpEndpoint(CollectorRegistry(), host="127.0.0.1", port=int(freed.rpartition(":")[2]), ready=Readiness())
    assert third.start() == freed
    third.close()
