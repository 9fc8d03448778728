"""An executor's tie to its coordinator, stream by stream."""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from takt.rpc.client import channel
from takt.v1 import commands_pb2
from takt.v1 import workers_pb2 as pb
from takt.v1 import workers_pb2_grpc as pb_grpc

from stage_worker import executor_link
from stage_worker.clock import ClockOffset
from stage_worker.executor_link import CoordinatorLink, CoordinatorLostError

pytestmark = pytest.mark.timeout(60)
WAIT_SECONDS = 20.0
LIMIT_SECONDS = 3.0


class Stream:
    """One stream, as the coordinator sees it."""

    def __init__(self, context: "grpc.ServicerContext[Any, Any]") -> None:
        self._context = context
        self.heard: queue.Queue[pb.ExecuteRequest | None] = queue.Queue()
        """None where the executor has ended it, or it broke."""
        self.say: queue.Queue[pb.ExecuteResponse | None] = queue.Queue()

    def hear(self, count: int) -> list[tuple[str | None, int]]:
        """Return kind and number of the next messages."""
        messages = [self.heard.get(timeout=WAIT_SECONDS) for _ in range(count)]
        return [(None, 0) if each is None else (each.WhichOneof("message"), each.number) for each in messages]

    def hello(self) -> pb.ExecutorHello:
        message = self.heard.get(timeout=WAIT_SECONDS)
        assert message is not None
        return message.hello

    def cut(self) -> None:
        self._context.cancel()
        self.say.put(None)


class Coordinator(pb_grpc.WorkerServiceServicer):
    """Takes streams on, or refuses them."""

    def __init__(self) -> None:
        self.streams: queue.Queue[Stream] = queue.Queue()
        self.refusal: grpc.StatusCode | None = None
        self.refused = threading.Event()

    def Execute(  # noqa: N802  gRPC's name
        self, request_iterator: Iterator[pb.ExecuteRequest], context: "grpc.ServicerContext[Any, Any]"
    ) -> Iterator[pb.ExecuteResponse]:
        if self.refusal is not None:
            self.refused.set()
            context.abort(self.refusal, "go away")
        stream = Stream(context)
        context.send_initial_metadata(())
        threading.Thread(target=self._listen, args=(request_iterator, stream), daemon=True).start()
        self.streams.put(stream)
        yield from iter(stream.say.get, None)

    def next_stream(self) -> Stream:
        return self.streams.get(timeout=WAIT_SECONDS)

    @staticmethod
    def _listen(requests: Iterator[pb.ExecuteRequest], stream: Stream) -> None:
        with contextlib.suppress(grpc.RpcError):
            for request in requests:
                stream.heard.put(request)
            stream.say.put(None)  # as the coordinator does, once all is read
        stream.heard.put(None)


def commands(last_seq: int, *, count: int = 1) -> commands_pb2.StepCommands:
    listed = [commands_pb2.Command(op=commands_pb2.OP_FORWARD)] * count
    first_seq = max(1, last_seq - count + 1)
    return commands_pb2.StepCommands(job="a", attempt=1, phase=1, step=1, first_seq=first_seq, commands=listed)


def report(step: int, *, last_seq: int) -> pb.ExecuteRequest:
    return pb.ExecuteRequest(step=commands_pb2.StepReport(step=step, last_seq=last_seq))


STORE = pb.ExecuteRequest(store_opened=pb.StoreOpened(address="h:1"))
READY = pb.ExecuteRequest(ready=pb.ExecutorReady(parameters=7))
MEET = pb.ExecuteResponse(rendezvous=pb.Rendezvous(address="h:1"))


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@contextlib.contextmanager
def serving(coordinator: Coordinator, address: str = "127.0.0.1:0") -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_WorkerServiceServicer_to_server(coordinator, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def address(coordinator: Coordinator) -> Iterator[str]:
    with serving(coordinator) as address:
        yield address


@pytest.fixture
def link(address: str, monkeypatch: pytest.MonkeyPatch) -> CoordinatorLink:
    monkeypatch.setattr(executor_link, "REDIAL_SECONDS", 0.05)
    return linked(address)


def linked(address: str) -> CoordinatorLink:
    hello = pb.ExecutorHello(job="a", attempt=1, worker=1, pid=9)
    return CoordinatorLink(channel(address), hello, clock=ClockOffset("x"), limit_seconds=LIMIT_SECONDS)


def test_link_says_again_what_was_not_acknowledged_in_order_after_what_stands(
    link: CoordinatorLink, coordinator: Coordinator
) -> None:
    first = coordinator.next_stream()
    hello = first.hello()
    assert (hello.job, hello.attempt, hello.worker, hello.pid, hello.done_seq) == ("a", 1, 1, 9, 0)
    link.say(STORE)
    for step in (1, 2, 3):
        link.say(report(step, last_seq=4 * step))
    link.say(READY)
    assert first.hear(5) == [("store_opened", 0), ("step", 1), ("step", 2), ("step", 3), ("ready", 0)]
    first.say.put(MEET)
    first.say.put(pb.ExecuteResponse(commands=commands(1), acknowledged=1))
    assert (link.rendezvous(), link.commands().first_seq) == ("h:1", 1)
    first.cut()

    second = coordinator.next_stream()
    hello = second.hello()
    assert (hello.pid, hello.done_seq) == (9, 12)
    link.say(report(4, last_seq=16))
    assert second.hear(5) == [("store_opened", 0), ("ready", 0), ("step", 2), ("step", 3), ("step", 4)]
    second.say.put(pb.ExecuteResponse(commands=commands(2), acknowledged=4))
    assert link.commands().first_seq == 2
    second.cut()

    third = coordinator.next_stream()
    third.hello()
    assert third.hear(2) == [("store_opened", 0), ("ready", 0)]
    link.close()
    assert third.hear(1) == [(None, 0)]


def test_link_word_of_a_command_that_is_done_is_not_kept_but_told_in_the_next_hello(
    link: CoordinatorLink, coordinator: Coordinator
) -> None:
    first = coordinator.next_stream()
    assert first.hello().done_seq == 0
    link.say(pb.ExecuteRequest(done=pb.CommandDone(seq=5)))
    assert first.hear(1) == [("done", 0)]
    first.cut()
    second = coordinator.next_stream()
    assert second.hello().done_seq == 5
    link.close()
    assert second.hear(1) == [(None, 0)]


def test_link_second_rendezvous_and_known_commands_are_dropped(link: CoordinatorLink, coordinator: Coordinator) -> None:
    first = coordinator.next_stream()
    first.say.put(MEET)
    assert link.rendezvous() == "h:1"
    first.say.put(pb.ExecuteResponse(commands=commands(3, count=3)))
    assert link.commands().first_seq == 1
    first.cut()
    second = coordinator.next_stream()
    second.say.put(MEET)
    second.say.put(pb.ExecuteResponse(commands=commands(3, count=3)))
    second.say.put(pb.ExecuteResponse(commands=commands(5, count=2)))
    assert link.commands().first_seq == 4
    link.close()


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ALREADY_EXISTS])
def test_link_that_is_refused_for_good_is_lost_at_once(
    code: grpc.StatusCode, link: CoordinatorLink, coordinator: Coordinator
) -> None:
    stream = coordinator.next_stream()
    coordinator.refusal = code
    stream.cut()
    begun = time.monotonic()
    with pytest.raises(CoordinatorLostError, match=f"{code.name}: go away"):
        link.commands()
    assert time.monotonic() - begun < LIMIT_SECONDS


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
def test_link_that_is_refused_for_now_dials_again(
    code: grpc.StatusCode, link: CoordinatorLink, coordinator: Coordinator
) -> None:
    stream = coordinator.next_stream()
    coordinator.refusal = code
    stream.cut()
    assert coordinator.refused.wait(WAIT_SECONDS)
    coordinator.refusal = None
    again = coordinator.next_stream()
    again.say.put(MEET)
    assert link.rendezvous() == "h:1"
    link.close()


def test_link_without_a_coordinator_is_lost_at_the_limit_and_not_before(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_link, "REDIAL_SECONDS", 0.05)
    with serving(coordinator) as address:
        link = linked(address)
        coordinator.next_stream().hello()
        begun = time.monotonic()
    with pytest.raises(CoordinatorLostError, match="UNAVAILABLE"):
        link.commands()
    assert LIMIT_SECONDS <= time.monotonic() - begun < LIMIT_SECONDS + 3
    begun = time.monotonic()
    link.close()
    assert time.monotonic() - begun < 1  # nobody is there to wait for


def test_link_tells_a_failure_to_a_coordinator_that_is_away_meanwhile(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_link, "REDIAL_SECONDS", 0.05)
    with serving(coordinator) as address:
        link = linked(address)
        coordinator.next_stream().hello()
    link.say(pb.ExecuteRequest(failure=pb.ExecutorFailure(type="ValueError", message="boom")))
    closing = threading.Thread(target=link.close)
    closing.start()
    closing.join(0.5)
    assert closing.is_alive()
    with serving(coordinator, address):
        again = coordinator.next_stream()
        begun = time.monotonic()
        assert again.hear(3) == [("hello", 0), ("failure", 1), (None, 0)]
        assert time.monotonic() - begun < LIMIT_SECONDS  # it has ended the stream itself
        closing.join(WAIT_SECONDS)
        assert not closing.is_alive()
