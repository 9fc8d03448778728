"""Signals that only count."""

import os
import signal
import time

from coordinator.cli.interrupts import Interrupts


def test_interrupts_count_signals_and_end_a_pause_early() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        began = time.monotonic()
        interrupts.pause(30)
        assert time.monotonic() - began < 10
        assert interrupts.count == 2


def test_interrupts_without_a_signal_pause_for_the_whole_time() -> None:
    with Interrupts() as interrupts:
        began = time.monotonic()
        interrupts.pause(0.05)
        assert time.monotonic() - began >= 0.05
        assert interrupts.count == 0


def test_interrupts_give_the_former_handlers_back() -> None:
    former = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != former[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == former
