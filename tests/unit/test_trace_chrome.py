"""Traces as Chrome trace JSON, read by a reader of its own and by ours."""

import json
import time
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from coordinator.trace.chrome import to_chrome
from coordinator.trace.chrome_reader import TraceError, from_chrome
from coordinator.trace.timeline import Sample, Span, Trace, Track, WorkerTrace
from tests.unit.chrome_document import Document, assert_nothing_overlaps

COMPUTE, SEND, RECEIVE, DATA = Track


def span(track: Track, name: str, start: float, end: float, **more: Any) -> Span:
    return Span(track=track, name=name, start=start, end=end, **({"step": 1} | more))


def two_workers() -> Trace:
    """A step of one microbatch on two stages by hand; times in seconds, one of them before time 0."""
    first = (
        span(DATA, "read", -0.001, 0.001, microbatch=0, num_bytes=512),
        span(COMPUTE, "data", 0.0, 0.001, stage=0, microbatch=0),
        span(COMPUTE, "F", 0.001, 0.003, stage=0, microbatch=0, embeddings=0.000500001, layers=0.001),
        span(SEND, "activation", 0.003, 0.004, stage=0, microbatch=0, peer=1, num_bytes=4096),
        span(COMPUTE, "gradient", 0.003, 0.007000123, stage=0, microbatch=0),
        span(RECEIVE, "gradient", 0.003, 0.007000123, stage=1, microbatch=0, peer=1, num_bytes=4096),
        span(COMPUTE, "B", 0.007000123, 0.009, stage=0, microbatch=0),
        span(COMPUTE, "step", 0.009, 0.010),
    )
    second = (
        span(COMPUTE, "activation", 0.0, 0.004, stage=1, microbatch=0),
        span(RECEIVE, "activation", 0.0, 0.004, stage=0, microbatch=0, peer=0, num_bytes=4096),
        span(COMPUTE, "F", 0.004, 0.005, stage=1, microbatch=0),
        span(COMPUTE, "I", 0.005, 0.0065, stage=1, microbatch=0, head=0.0005),
        span(SEND, "gradient", 0.0065, 0.007, stage=1, microbatch=0, peer=0, num_bytes=4096),
        span(COMPUTE, "W", 0.0065, 0.008, stage=1, microbatch=0),
        span(COMPUTE, "reduce", 0.008, 0.009),
        span(COMPUTE, "step", 0.009, 0.010),
    )
    held = (Sample(time=0.001, in_flight=1, memory_bytes=7), Sample(time=0.009, in_flight=0, memory_bytes=None))
    empty = (Sample(time=0.0, in_flight=0, memory_bytes=0),)
    return Trace(
        job="bert",
        schedule="zbh1",
        origin=1_790_000_000.125,
        clock_error_seconds=0.00015,
        workers=(
            WorkerTrace(worker=0, dp_rank=0, stages=(0,), spans=first, samples=held),
            WorkerTrace(worker=1, dp_rank=0, stages=(1,), spans=second, samples=empty),
        ),
    )


def document_of(measured: Trace | None, predicted: Trace | None = None) -> Document:
    return Document("".join(to_chrome(measured, predicted)))


def with_spans(trace: Trace, *spans: tuple[Span, ...]) -> Trace:
    workers = zip(trace.workers, spans, strict=True)
    return replace(trace, workers=tuple(replace(worker, spans=own, samples=()) for worker, own in workers))


def test_chrome_names_every_action_as_the_plan_does_and_every_wait_by_its_reason() -> None:
    names = [(one.process, one.thread, one.category, one.name) for one in document_of(two_workers()).slices]
    first, second = "worker 0 (stage 0)", "worker 1 (stage 1)"
    assert names == [
        (first, "data", "data", "read 0"),
        (first, "compute", "idle", "wait data"),
        (first, "compute", "busy", "0F0"),
        (first, "send", "send", "0SEND_F0"),
        (first, "compute", "idle", "wait gradient"),
        (first, "receive", "receive", "0RECV_B0"),
        (first, "compute", "busy", "0B0"),
        (first, "compute", "busy", "STEP"),
        (second, "compute", "idle", "wait activation"),
        (second, "receive", "receive", "1RECV_F0"),
        (second, "compute", "busy", "1F0"),
        (second, "compute", "busy", "1I0"),
        (second, "send", "send", "1SEND_B0"),
        (second, "compute", "busy", "1W0"),
        (second, "compute", "idle", "wait reduce"),
        (second, "compute", "busy", "STEP"),
    ]


def test_chrome_tells_times_to_the_nanosecond_and_what_is_known_of_a_span() -> None:
    document = document_of(two_workers())
    waited = next(one for one in document.slices if one.name == "wait gradient")
    assert (waited.start, waited.end) == (3_000_000, 7_000_123)
    assert document.slices[0].start == -1_000_000
    sent = next(one for one in document.slices if one.name == "1SEND_B0")
    assert sent.args == {"kind": "gradient", "step": 1, "stage": 1, "microbatch": 0, "peer": 0, "bytes": 4096}
    assert (document.raw["displayTimeUnit"], document.raw["metadata"]["takt_trace"]) == ("ms", 1)


def test_chrome_draws_an_arrow_from_each_send_to_its_receive() -> None:
    arrows = document_of(two_workers()).arrows()
    assert [(tail.name, head.name) for tail, head in arrows] == [("0SEND_F0", "1RECV_F0"), ("1SEND_B0", "0RECV_B0")]


def test_chrome_joins_transfers_that_take_no_time_and_those_that_begin_together() -> None:
    """Both receives of worker 1 begin with one another and, where they take no time, end there too."""
    for took in (0.0, 1e-9, 0.5):
        sends = tuple(span(SEND, "gradient", 1, 1 + took, stage=2, microbatch=m, peer=1) for m in (0, 1))
        receives = tuple(span(RECEIVE, "gradient", 1, 1 + took, stage=2, microbatch=m, peer=0) for m in (0, 1))
        arrows = document_of(with_spans(two_workers(), receives, sends)).arrows()
        assert [(tail.name, head.name) for tail, head in arrows] == [("2SEND_B0", "1RECV_B0"), ("2SEND_B1", "1RECV_B1")]


def test_chrome_draws_a_receive_from_its_send_on_since_a_viewer_turns_other_arrows_round() -> None:
    """Of 100 receives that were posted at once the first is over before its send, as of a clock that is off."""
    sends = tuple(span(SEND, "activation", 50 + m, 51 + m, stage=0, microbatch=m) for m in range(100))
    receives = tuple(span(RECEIVE, "activation", 0.25, 51.5 + m, stage=0, microbatch=m) for m in range(100))
    receives = (replace(receives[0], end=49.0), *receives[1:])
    trace = with_spans(two_workers(), sends, receives)
    text = "".join(to_chrome(trace, None))
    document = Document(text)
    assert_nothing_overlaps(document.slices)
    drawn = [one for one in document.slices if one.category == "receive"]
    assert [(one.start, one.end) for one in drawn[:2]] == [(49 * 10**9,) * 2, (51 * 10**9, 52_500_000_000)]
    assert {one.args["posted"] for one in drawn} == {"250000.000"}
    assert len({one.thread for one in drawn}) == 2
    assert from_chrome(text) == trace


def test_chrome_tells_transfers_of_a_step_from_those_of_an_evaluation_behind_it_by_their_order() -> None:
    sends = tuple(span(SEND, "activation", t, t + 1, stage=0, microbatch=0, peer=1) for t in (0, 10, 20))
    receives = tuple(span(RECEIVE, "activation", t, t + 2, stage=0, microbatch=0, peer=0) for t in (0, 10, 20))
    arrows = document_of(with_spans(two_workers(), sends, receives)).arrows()
    assert [(tail.start, head.start) for tail, head in arrows] == [(t * 10**9,) * 2 for t in (0, 10, 20)]
    assert not document_of(with_spans(two_workers(), sends, receives[1:])).arrows()  # which is missing, nobody knows


def test_chrome_joins_no_transfers_of_different_replicas_steps_or_kinds() -> None:
    send = span(SEND, "activation", 0, 1, stage=0, microbatch=0)
    receive = span(RECEIVE, "activation", 0, 2, stage=0, microbatch=0)
    trace = with_spans(two_workers(), (send,), (receive,))
    assert len(document_of(trace).arrows()) == 1
    for other in (
        replace(receive, step=2),
        replace(receive, microbatch=1),
        replace(receive, stage=1),
        replace(receive, name="gradient"),
    ):
        assert not document_of(with_spans(trace, (send,), (other,))).arrows()
    first, second = trace.workers
    assert not document_of(replace(trace, workers=(first, replace(second, dp_rank=1)))).arrows()


def test_chrome_puts_planned_workers_beside_measured_ones_at_the_distance_of_their_origins() -> None:
    measured = two_workers()
    document = document_of(measured, replace(measured, origin=measured.origin - 0.5))
    assert [document.processes[number] for number in sorted(document.processes)] == [
        "worker 0 (stage 0)",
        "worker 0 (planned)",
        "worker 1 (stage 1)",
        "worker 1 (planned)",
    ]
    starts = {one.process: one.start for one in document.slices if one.name == "1F0"}
    assert starts == {"worker 1 (stage 1)": 4_000_000, "worker 1 (planned)": 4_000_000 - 500_000_000}
    arrows = Counter((tail.process, head.process) for tail, head in document.arrows())
    assert arrows == {
        ("worker 0 (stage 0)", "worker 1 (stage 1)"): 1,
        ("worker 1 (stage 1)", "worker 0 (stage 0)"): 1,
        ("worker 0 (planned)", "worker 1 (planned)"): 1,
        ("worker 1 (planned)", "worker 0 (planned)"): 1,
    }


def test_chrome_names_sort_as_numbers_and_tell_chunks_and_replicas() -> None:
    own = two_workers().workers[0]
    workers = tuple(replace(own, worker=number, dp_rank=number // 6, stages=(number, number + 6)) for number in (0, 11))
    names = document_of(replace(two_workers(), workers=workers)).processes.values()
    assert list(names) == ["worker 00 (replica 0, stages 0 6)", "worker 11 (replica 1, stages 11 17)"]


def test_chrome_gives_overlapping_spans_of_a_track_threads_of_their_own() -> None:
    sends = [span(SEND, "activation", m, m + 2.5, stage=0, microbatch=m) for m in range(6)]
    document = document_of(with_spans(two_workers(), tuple(sends), ()))
    assert_nothing_overlaps(document.slices)
    assert [one.thread for one in document.slices] == ["send", "send 2", "send 3"] * 2
    assert document.order("worker 0 (stage 0)") == ["compute", "send", "send 2", "send 3", "receive", "data"]


def test_chrome_counts_what_is_in_flight_and_memory_where_it_is_known() -> None:
    document = document_of(two_workers())
    worker = "worker 0 (stage 0)"
    assert document.counter(worker, "in flight") == [(1_000_000, {"microbatches": 1}), (9_000_000, {"microbatches": 0})]
    assert document.counter(worker, "memory") == [(1_000_000, {"bytes": 7})]
    assert document.counter("worker 1 (stage 1)", "memory") == [(0, {"bytes": 0})]


def test_chrome_is_read_back_as_it_was_written() -> None:
    trace = replace(two_workers(), job='a "job" \u00e9', clock_error_seconds=0.1 + 0.2)
    text = "".join(to_chrome(trace, two_workers()))
    assert from_chrome(text) == trace
    assert "".join(to_chrome(from_chrome(text), two_workers())) == text
    assert from_chrome(json.dumps(json.loads(text), indent=4)) == trace  # laid out by another program


def test_chrome_rounds_times_to_the_nearest_nanosecond() -> None:
    rough = (span(COMPUTE, "step", 1 / 3, 2 / 3, step=9),)
    read = from_chrome("".join(to_chrome(with_spans(two_workers(), rough, ()), None)))
    assert read.workers[0].spans == (span(COMPUTE, "step", 0.333333333, 0.666666667, step=9),)


MEMORY_FIRST = """{"metadata": {"takt_trace": 1, "measured": {"job": "a", "schedule": "b", "origin": 0,
"clock_error_seconds": 0, "workers": [{"worker": 0, "dp_rank": 0, "stages": [0]}]}},
"traceEvents": [{"ph": "C", "pid": 1, "ts": 0.5, "name": "memory", "args": {"bytes": 1}}]}"""


def test_chrome_reads_times_of_days_back_to_the_nanosecond() -> None:
    random = Random(7)
    starts = sorted(random.randrange(10**14) for _ in range(500))
    spans = tuple(span(COMPUTE, "step", start / 1e9, (start + random.randrange(10**9)) / 1e9) for start in starts)
    trace = with_spans(two_workers(), spans, ())
    assert from_chrome("".join(to_chrome(trace, None))) == trace


def damaged(**changes: Any) -> str:
    document = json.loads("".join(to_chrome(two_workers(), None)))
    first = next(event for event in document["traceEvents"] if event["ph"] == "X")
    first["args"].update({key: value for key, value in changes.items() if key in first["args"]})
    first.update({key: value for key, value in changes.items() if key in first})
    document["metadata"].update({key: value for key, value in changes.items() if key in document["metadata"]})
    return json.dumps(document)


HEAD = json.loads("".join(to_chrome(two_workers(), None)))["metadata"]["measured"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "no trace that Takt wrote"),
        ('{"traceEvents": []}', "no trace that Takt wrote"),
        (damaged(takt_trace=2), "is a trace of version 2, this version of Takt reads 1"),
        ("".join(to_chrome(None, two_workers())), "holds a plan only"),
        (damaged(measured={"job": "a"}), "is damaged in metadata.measured: 'workers' is missing"),
        (damaged(measured=[]), "is damaged in metadata.measured"),
        (damaged(ts="12"), r"is damaged in traceEvents\[10\]: '12' is no number"),
        (damaged(ts=float("inf")), r"is damaged in traceEvents\[10\]"),
        (damaged(cat="music"), r"is damaged in traceEvents\[10\]: 'music' is missing or unknown"),
        (MEMORY_FIRST, r"is damaged in traceEvents\[0\]: no sample stands before it"),
        (damaged(args=[]), r"is damaged in traceEvents\[10\]"),
        (damaged(step=True), r"is damaged in traceEvents\[10\]: True is no integer"),
        (damaged(dur=-0.001), r"is damaged in traceEvents\[10\]: dur and step cannot be below 0"),
        (damaged(step=-1), r"is damaged in traceEvents\[10\]: dur and step cannot be below 0"),
        (
            damaged(measured={**HEAD, "clock_error_seconds": float("nan")}),
            "is damaged in metadata.measured: nan is not finite",
        ),
    ],
)
def test_reading_a_text_that_is_no_trace_says_why(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        from_chrome(text)


def test_chrome_of_64_workers_and_55_steps_is_written_piece_by_piece_in_seconds() -> None:
    own = two_workers().workers
    spans = [
        tuple(replace(s, start=s.start + k, end=s.end + k, step=k) for k in range(1, 56) for s in worker.spans)
        for worker in own
    ]
    workers = tuple(replace(own[n % 2], worker=n, dp_rank=n // 2, spans=spans[n % 2]) for n in range(64))
    started = time.process_time()
    pieces = list(map(len, to_chrome(replace(two_workers(), workers=workers), None)))
    assert time.process_time() - started < 10
    assert len(pieces) > 64 * 55 * (8 + 2)  # spans and ends of arrows
    assert max(pieces) < 5_000  # the head, which lists the workers
