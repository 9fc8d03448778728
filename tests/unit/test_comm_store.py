"""The store of an attempt, over real sockets."""

import json
import socket
import threading
import time
from datetime import timedelta

import pytest

from stage_worker.comm_nccl import open_or_join_tcp_store
from stage_worker.comm_store import AttemptStore, PrefixStore, RendezvousError, join_store, open_store

HOST = "127.0.0.1"


@pytest.fixture
def store() -> AttemptStore:
    return open_store(HOST, limit_seconds=10)


def test_value_is_read_by_others_byte_for_byte(store: AttemptStore) -> None:
    value = bytes(range(256)) * 100
    store.set("key", value)
    assert join_store(store.address, limit_seconds=10).get("key") == value


def test_reader_waits_for_the_one_who_sets(store: AttemptStore) -> None:
    reader = join_store(store.address, limit_seconds=10)
    setter = threading.Timer(0.2, lambda: store.set("late", b"here"))
    setter.start()
    assert reader.get("late") == b"here"
    reader.wait(["late"], timedelta(seconds=1))


def test_reader_of_what_nobody_sets_is_told_the_key_at_the_limit(store: AttemptStore) -> None:
    reader = join_store(store.address, limit_seconds=0.2)
    started = time.monotonic()
    with pytest.raises(
        RendezvousError, match=r"nobody set a/key in the rendezvous store at 127\.0\.0\.1:\d+ in 0\.2 s"
    ):
        reader.get("a/key")
    with pytest.raises(RendezvousError, match="nobody set other"):
        reader.wait(["other"], timedelta(seconds=0.1))
    assert time.monotonic() - started < 5


def test_readers_of_one_client_do_not_take_each_others_replies(store: AttemptStore) -> None:
    for number in range(8):
        store.set(str(number), bytes([number]) * 1000)
    wrong: list[int] = []

    def read(number: int) -> None:
        wrong.extend(number for _ in range(50) if store.get(str(number)) != bytes([number]) * 1000)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(timeout=30)
    assert wrong == []


def test_prefixes_keep_attempts_apart(store: AttemptStore) -> None:
    PrefixStore("job/1", store).set("key", "old")
    PrefixStore("job/2", store).set("key", "new")
    assert [PrefixStore(f"job/{attempt}", store).get("key") for attempt in (1, 2)] == [b"old", b"new"]


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"[1, 2]\n",
        b'"set"\n',
        b"{}\n",
        b'{"set": "key"}\n',
        b'{"set": "key", "value": "no base64!"}\n',
        b'{"get": "key"}\n',
        b'{"get": "key", "limit_seconds": "nan?"}\n',
        b'{"get": "unset", "limit_seconds": NaN}\n',
        b'{"get": "unset", "limit_seconds": "inf"}\n',
        b'{"get": "unset", "limit_seconds": 1e12}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_request_of_a_stranger_ends_its_connection_and_nothing_else(
    store: AttemptStore, line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    host, _, port = store.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.sendall(line)
        assert stranger.recv(100) == b""
    store.set("key", b"value")
    assert store.get("key") == b"value"
    assert capfd.readouterr().err == ""


def test_request_without_an_end_is_cut_off(store: AttemptStore) -> None:
    host, _, port = store.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger, pytest.raises(OSError):  # noqa: PT012
        for _ in range(100):
            stranger.sendall(b"x" * (1 << 20))
            time.sleep(0.01)


def test_store_that_is_gone_is_named() -> None:
    with socket.create_server((HOST, 0)) as listener:
        address = f"{HOST}:{listener.getsockname()[1]}"
        client = join_store(address, limit_seconds=10)
        listener.accept()[0].close()
    with pytest.raises(RendezvousError, match=f"the rendezvous store at {address} is gone"):
        client.get("key")


def test_reply_that_is_none_is_not_taken_for_one() -> None:
    with socket.create_server((HOST, 0)) as listener:
        address = f"{HOST}:{listener.getsockname()[1]}"
        client = join_store(address, limit_seconds=10)
        other, _ = listener.accept()
        other.sendall(json.dumps({"value": "cut off"}).encode()[:5])
        other.close()
        with pytest.raises(RendezvousError, match="is gone"):
            client.get("key")


def test_nccls_own_store_is_found_through_the_attempts(store: AttemptStore) -> None:
    """NCCL itself needs two GPUs; the store that its threads ask does not."""
    limit = timedelta(seconds=10)
    first = open_or_join_tcp_store(store, worker=0, host=HOST, limit=limit)
    second = open_or_join_tcp_store(join_store(store.address, limit_seconds=10), worker=1, host=HOST, limit=limit)
    first.set("key", "value")
    assert second.get("key") == b"value"
    with pytest.raises(OSError):  # it listens where it was told to and nowhere else
        socket.create_connection(("127.0.0.2", first.port), timeout=5).close()
