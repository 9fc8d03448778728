import gc
import threading
import weakref

import pytest
import torch

from stage_worker.comm_sends import PendingSends
from stage_worker.engine.transport import PeerLostError

pytestmark = pytest.mark.timeout(20)


class FakeWork:
    """A send that is done when it is told so, or fails with ``error``."""

    def __init__(self, error: str | None = None) -> None:
        self.left = threading.Event()
        self.waited = threading.Event()
        self.error = error

    def wait(self) -> bool:
        self.waited.set()
        self.left.wait()
        if self.error is not None:
            raise RuntimeError(self.error)
        return True


def test_sends_keep_their_buffer_until_they_have_left() -> None:
    sends, work, buffer = PendingSends(), FakeWork(), torch.zeros(3)
    alive = weakref.ref(buffer)
    sends.add(work, buffer, worker=1)
    del buffer
    work.waited.wait()
    gc.collect()
    assert alive() is not None
    work.left.set()
    sends.flush()
    gc.collect()
    assert alive() is None
    sends.close()


def test_flush_waits_for_all() -> None:
    sends, works = PendingSends(), [FakeWork() for _ in range(3)]
    for work in works:
        sends.add(work, torch.zeros(1), worker=1)
    flushed = threading.Event()
    threading.Thread(target=lambda: (sends.flush(), flushed.set()), daemon=True).start()
    for work in works[:2]:
        work.left.set()
    works[2].waited.wait()
    assert not flushed.is_set()
    works[2].left.set()
    assert flushed.wait(10)
    sends.close()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("[pair.cc:553] Connection closed by peer [127.0.0.1]:1", "worker 3 closed its connection"),
        ("read: Connection reset by peer", "worker 3 closed its connection"),
        ("Timed out waiting 5000ms for send operation", "worker 3 did not answer within the transport's limit"),
        ("something new", "worker 3 is lost: something new"),
    ],
)
def test_send_that_fails_names_the_worker(error: str, text: str) -> None:
    sends, work = PendingSends(), FakeWork(error)
    work.left.set()
    sends.add(work, torch.zeros(1), worker=3)
    with pytest.raises(PeerLostError, match=text):
        sends.flush()
    with pytest.raises(PeerLostError, match=text):
        sends.add(FakeWork(), torch.zeros(1), worker=1)
    sends.close()
