"""The Gloo transport over real sockets: what arrives is verified, who is gone is named, no wait is for ever."""

import itertools
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from stage_worker.comm_gloo import GlooTransport, join_gloo, tag_of
from stage_worker.comm_place import Place
from stage_worker.comm_store import AttemptStore, RendezvousError, join_store, open_store
from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import Message, PeerLostError, TransferError, TransferKind
from tests.integration.parity.threaded import joined, together

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[3]


def message(
    *,
    phase: Phase = Phase.TRAIN,
    step: int = 1,
    kind: TransferKind = TransferKind.ACTIVATION,
    boundary: int = 0,
    microbatch: int = 0,
    shape: tuple[int, ...] = (2, 3, 4),
    dtype: torch.dtype = torch.float32,
) -> Message:
    return Message(
        phase=phase, step=step, kind=kind, boundary=boundary, microbatch=microbatch, shape=shape, dtype=dtype
    )


def numbers(shape: tuple[int, ...] = (2, 3, 4), start: float = 0.0) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape) + start


@pytest.fixture
def pair() -> Iterator[list[GlooTransport]]:
    transports = joined(pp=2, limit_seconds=20)
    yield transports
    for transport in transports:
        transport.close()


def test_transfer_of_a_view_arrives_whole(pair: list[GlooTransport]) -> None:
    view = numbers((3, 2, 4)).transpose(0, 1)
    pending = pair[1].receive(message(), from_worker=0)
    pair[0].send(view, message(), to_worker=1)
    assert torch.equal(pending.wait(), view)


def test_transfer_keeps_what_was_sent_when_the_tensor_changes(pair: list[GlooTransport]) -> None:
    tensor = numbers()
    pair[0].send(tensor, message(), to_worker=1)
    tensor.zero_()
    assert torch.equal(pair[1].receive(message(), from_worker=0).wait(), numbers())
    pair[0].flush()


def test_transfers_match_by_what_they_are_and_not_by_order(pair: list[GlooTransport]) -> None:
    kinds = [
        message(microbatch=m, kind=kind, phase=phase)
        for m in range(8)
        for kind in TransferKind
        for phase in (Phase.TRAIN, Phase.EVALUATE)
    ]
    for index, each in enumerate(kinds):
        pair[0].send(numbers(start=float(index)), each, to_worker=1)
    pending = [pair[1].receive(each, from_worker=0) for each in reversed(kinds)]
    for index, receive in zip(reversed(range(len(kinds))), pending, strict=True):
        assert torch.equal(receive.wait(), numbers(start=float(index)))
    pair[0].flush()


def test_transfers_of_three_boundaries_cross_between_two_workers_both_ways(pair: list[GlooTransport]) -> None:
    """Two workers with two chunks each, stages 0 1 0 1: the one before and the one behind are the same worker."""
    transfers = []
    for boundary, microbatch in itertools.product(range(3), range(4)):
        below = boundary % 2
        transfers.append((below, message(boundary=boundary, microbatch=microbatch)))
        gradient = message(kind=TransferKind.GRADIENT, boundary=boundary, microbatch=microbatch)
        transfers.append((1 - below, gradient))
    for number, (source, each) in enumerate(transfers):
        pair[source].send(numbers(start=100.0 * number), each, to_worker=1 - source)
    pending = [(n, pair[1 - source].receive(each, from_worker=source)) for n, (source, each) in enumerate(transfers)]
    for number, receive in reversed(pending):
        assert torch.equal(receive.wait(), numbers(start=100.0 * number))
    for transport in pair:
        transport.flush()


def test_transfers_whose_tags_repeat_match_in_order(pair: list[GlooTransport]) -> None:
    sent = [message(boundary=b, microbatch=m) for b in (5, 5 + (1 << 12)) for m in (2, 2 + (1 << 12))]
    assert len({tag_of(each) for each in sent}) == 1
    pending = [pair[1].receive(each, from_worker=0) for each in sent]
    for index, each in enumerate(sent):
        pair[0].send(numbers(start=float(index)), each, to_worker=1)
    for index, receive in enumerate(pending):
        assert torch.equal(receive.wait(), numbers(start=float(index)))


def test_tags_are_positive_int32_and_tell_kinds_apart() -> None:
    evaluate, most = Phase.EVALUATE, 2**32 - 1
    large = [message(phase=evaluate, step=most, kind=k, boundary=64 * 4096 - 1, microbatch=most) for k in TransferKind]
    tags = [tag_of(each) for each in large]
    assert len(set(tags)) == len(TransferKind)
    assert all(0 <= tag < 2**31 for tag in tags)
    assert tag_of(message(step=32)) == 0


@pytest.mark.parametrize(
    ("sent", "announced"),
    [
        (message(shape=(2, 2, 4)), message(shape=(2, 3, 4))),
        (message(shape=(3, 2, 4)), message(shape=(2, 3, 4))),
        (message(step=1), message(step=33)),
        (message(microbatch=4096), message(microbatch=0)),
        (message(boundary=4098), message(boundary=2)),
        (message(dtype=torch.float32), message(dtype=torch.bfloat16, shape=(2, 3, 8))),
    ],
    ids=["short", "shape", "step", "microbatch", "boundary", "dtype"],
)
def test_transfer_of_another_message_is_refused(sent: Message, announced: Message, pair: list[GlooTransport]) -> None:
    pending = pair[1].receive(announced, from_worker=0)
    pair[0].send(numbers(sent.shape), sent, to_worker=1)
    with pytest.raises(TransferError, match=r"was announced, but .* arrived"):
        pending.wait()


def test_send_of_what_was_not_announced_is_refused_before_it_leaves(pair: list[GlooTransport]) -> None:
    with pytest.raises(TransferError, match=r"shape \(2, 9, 4\).* was computed"):
        pair[0].send(numbers((2, 9, 4)), message(), to_worker=1)
    with pytest.raises(TransferError, match=r"float64 was computed"):
        pair[0].send(numbers().double(), message(), to_worker=1)


def test_flush_lets_go_of_every_buffer(pair: list[GlooTransport]) -> None:
    for microbatch in range(16):
        pair[0].send(numbers(), message(microbatch=microbatch), to_worker=1)
    waiting = threading.Thread(target=pair[0].flush)
    waiting.start()
    for microbatch in range(15):
        pair[1].receive(message(microbatch=microbatch), from_worker=0).wait()
    waiting.join(0.2)
    assert waiting.is_alive(), "one send is still without its receive"
    pair[1].receive(message(microbatch=15), from_worker=0).wait()
    waiting.join(20)
    assert not waiting.is_alive()


def test_sums_are_over_the_own_replica_and_over_the_twins() -> None:
    transports = joined(pp=2, dp=2)
    tensors = [torch.tensor([0.1, float(10**worker)]) for worker in range(4)]
    stages = together([lambda t=t, x=x: t.add_over_stages(x) for t, x in zip(transports, tensors, strict=True)])
    twins = together([lambda t=t, x=x: t.add_over_replicas(x) for t, x in zip(transports, tensors, strict=True)])
    assert [result[1].item() for result in stages] == [11, 11, 1100, 1100]
    assert [result[1].item() for result in twins] == [101, 1010, 101, 1010]
    assert [tensor[1].item() for tensor in tensors] == [1, 10, 100, 1000], "the arguments stay as they are"
    for transport in transports:
        transport.close()


def test_sum_over_replicas_adds_in_rank_order() -> None:
    """In fp32 (1 + 1e8) - 1e8 is 0, and any other order gives 1."""
    transports = joined(pp=1, dp=3)
    parts = [torch.tensor([value]) for value in (1.0, 1e8, -1e8)]
    sums = together([lambda t=t, x=x: t.add_over_replicas(x) for t, x in zip(transports, parts, strict=True)])
    assert [total.item() for total in sums] == [0.0, 0.0, 0.0]
    for transport in transports:
        transport.close()


def test_wait_without_a_sender_ends_at_the_limit_and_names_the_worker() -> None:
    transports = joined(pp=2, limit_seconds=1)
    with pytest.raises(PeerLostError, match="worker 0 did not answer"):
        transports[1].receive(message(), from_worker=0).wait()
    for transport in transports:
        transport.close()


LONELY = """
import sys, torch
from datetime import timedelta
from stage_worker.comm_place import Place
from stage_worker.comm_gloo import join_gloo
from stage_worker.comm_store import join_store
from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import Message, TransferKind
store = join_store(sys.argv[1], limit_seconds=20)
transport = join_gloo(
    store, place=Place(worker=0, pp=2, dp=1), host="127.0.0.1", device=torch.device("cpu"), limit=timedelta(seconds=30)
)
message = Message(phase=Phase.TRAIN, step=1, kind=TransferKind.ACTIVATION, boundary=0, microbatch=0,
                  shape=(1, 2, 4), dtype=torch.float32)
print("joined", flush=True)
"""


def join_with_process(
    store: AttemptStore, code: str, *, limit_seconds: float = 30
) -> tuple[GlooTransport, subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", LONELY + code, store.address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    own = join_store(store.address, limit_seconds=20)
    place = Place(worker=1, pp=2, dp=1)
    limit = timedelta(seconds=limit_seconds)
    return join_gloo(own, place=place, host="127.0.0.1", device=torch.device("cpu"), limit=limit), child


def test_wait_for_a_killed_worker_names_it_at_once() -> None:
    store = open_store("127.0.0.1", limit_seconds=20)
    transport, child = join_with_process(store, "sys.stdin.read()\n")
    pending = transport.receive(message(), from_worker=0)
    child.kill()
    child.communicate()
    with pytest.raises(PeerLostError, match="worker 0 closed its connection"):
        pending.wait()
    transport.close()


def test_flush_to_a_killed_worker_names_it_at_once() -> None:
    store = open_store("127.0.0.1", limit_seconds=20)
    transport, child = join_with_process(store, "sys.stdin.read()\n")
    transport.send(numbers(), message(), to_worker=0)
    child.kill()
    child.communicate()
    with pytest.raises(PeerLostError, match="worker 0 closed its connection"):
        transport.flush()
    transport.close()


def test_longer_message_than_announced_ends_the_receiver() -> None:
    """Gloo itself aborts; no worker goes on with wrong data, and its agent sees signal 6."""
    store = open_store("127.0.0.1", limit_seconds=20)
    code = "transport.receive(message, from_worker=1).wait()\n"
    transport, child = join_with_process(store, code)
    transport.send(numbers((1, 8, 4)), message(shape=(1, 8, 4)), to_worker=0)
    child.communicate(timeout=30)
    assert child.returncode == -6
    transport.close()


def test_store_listens_on_its_host_only() -> None:
    store = open_store("127.0.0.1", limit_seconds=20)
    port = int(store.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", port), timeout=5).close()


def test_store_on_a_foreign_address_is_refused() -> None:
    with pytest.raises(RendezvousError, match=r"cannot listen on 192\.0\.2\.1"):
        open_store("192.0.2.1", limit_seconds=20)


def test_store_that_nobody_opened_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(RendezvousError, match=address):
        join_store(address, limit_seconds=1)


def test_join_without_the_others_ends_at_the_limit() -> None:
    store = open_store("127.0.0.1", limit_seconds=20)
    place, limit = Place(worker=0, pp=2, dp=1), timedelta(seconds=1)
    with pytest.raises(RendezvousError, match=r"2 workers .* did not all connect"):
        join_gloo(store, place=place, host="127.0.0.1", device=torch.device("cpu"), limit=limit)


SILENT_NAME_SERVER = """
import fcntl, socket, struct, subprocess, sys
with socket.socket() as any_socket:  # the namespace's loopback is down
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
socket.sethostname("no-such-host.invalid")
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
name_server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
name_server.bind(("127.0.0.53", 53))
name_server.setblocking(False)
from tests.integration.parity.threaded import joined
[transport.close() for transport in joined(pp=2)]
print("joined")
try:
    print("asked for", name_server.recv(512))
except BlockingIOError:
    pass
"""


def test_join_asks_no_name_server_and_not_for_the_machines_name(tmp_path: Path) -> None:
    """H13: torch's own store asks for the name of each address it connects to, and waits 10 s for a silent server."""
    unshare = [shutil.which("unshare") or "unshare", "-Urnm", "--uts"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("no user, network, mount and UTS namespaces here")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.53\n")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", SILENT_NAME_SERVER, str(tmp_path / "resolv.conf")],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stdout == "joined\n", done.stderr
    assert "Unable to resolve hostname" not in done.stderr
