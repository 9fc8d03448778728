"""Reading HOST:PORT."""

import errno

import pytest
from takt.rpc.address import join, listen_failure, parse_listen
from takt.rpc.errors import AddressInUseError, ListenError


def test_parse_listen_keeps_host_and_port() -> None:
    address = parse_listen("127.0.0.1:7700")
    assert (address.host, address.numeric, address.port) == ("127.0.0.1", "127.0.0.1", 7700)
    assert address.at(43121) == "127.0.0.1:43121"


def test_parse_listen_on_localhost_means_one_ipv4_address() -> None:
    address = parse_listen("localhost:0")
    assert address.numeric == "127.0.0.1"
    assert address.at(5) == "localhost:5"


def test_parse_listen_with_ipv6_takes_brackets() -> None:
    address = parse_listen("[::1]:7700")
    assert (address.numeric, address.port) == ("::1", 7700)
    assert address.is_loopback
    assert address.at(1) == "[::1]:1"


@pytest.mark.parametrize("listen", ["", "7700", ":7700", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536"])
def test_parse_listen_without_host_and_port_names_value_and_rule(listen: str) -> None:
    with pytest.raises(ListenError, match="need HOST:PORT") as caught:
        parse_listen(listen)
    assert repr(listen) in str(caught.value)


def test_parse_listen_beyond_loopback_needs_insecure() -> None:
    with pytest.raises(ListenError, match="--insecure"):
        parse_listen("0.0.0.0:7700")
    assert not parse_listen("0.0.0.0:7700", insecure=True).is_loopback


def test_listen_failure_tells_a_used_port_from_other_causes() -> None:
    assert isinstance(listen_failure("h:1", OSError(errno.EADDRINUSE, "in use")), AddressInUseError)
    other = listen_failure("h:1", OSError(errno.EACCES, "Permission denied"))
    assert isinstance(other, ListenError)
    assert str(other) == "cannot listen on h:1: Permission denied"


def test_join_brackets_only_ipv6() -> None:
    assert join("::1", 7) == "[::1]:7"
    assert join("host", 7) == "host:7"
