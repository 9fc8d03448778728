"""Signals that only count."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from coordinator.cli.interrupts import Interrupts, stops_interrupt


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stop_before_anything_counts_signals_unwinds_as_ctrl_c_does(number: signal.Signals) -> None:
    former = signal.signal(number, signal.SIG_DFL)  # whoever started the tests may have ignored it
    try:
        with pytest.raises(KeyboardInterrupt), stops_interrupt():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, former)


@pytest.mark.parametrize("watch", [Interrupts, stops_interrupt])
def test_hangup_that_nohup_has_ignored_stays_ignored(watch: Callable[[], AbstractContextManager[object]]) -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with watch():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)
