"""A data service whose rows say where they come from."""

import array
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from takt.v1 import data_pb2 as pb
from takt.v1 import data_pb2_grpc as pb_grpc

COLUMNS = ("input_ids", "token_type_ids", "attention_mask", "labels")


class FakeDataService(pb_grpc.DataServiceServicer):
    """Serves microbatches of given shapes; row r of microbatch m of step s is made of the id 100 s + 10 m + r."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        self.shapes = tuple(shapes)
        self.requests: list[pb.ReadStepRequest] = []
        self.asked = threading.Condition()
        self.failures: list[grpc.StatusCode] = []
        """Codes that the next calls end with, after their first microbatch."""
        self.last: int | None = None
        """Last step that it has; None where it has any."""
        self.silent = threading.Event()
        """While it is set, calls bring nothing."""

    def ReadStep(  # noqa: N802  gRPC's name
        self, request: pb.ReadStepRequest, context: "grpc.ServicerContext[Any, Any]"
    ) -> Iterator[pb.ReadStepResponse]:
        with self.asked:
            self.requests.append(request)
            self.asked.notify_all()
        while self.silent.is_set() and context.is_active():
            self.silent.wait(0.01)
        if self.last is not None and request.step > self.last:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"step is {request.step}, the phase has {self.last} steps")
        failure = self.failures.pop(0) if self.failures else None
        for microbatch, (rows, width) in enumerate(self.shapes):
            ids = [100 * request.step + 10 * microbatch + row for row in range(rows)]
            columns = [column(name, ids, width) for name in request.columns] if rows else []
            yield pb.ReadStepResponse(microbatches=[pb.Microbatch(microbatch=microbatch, row_ids=ids, columns=columns)])
            if failure is not None:
                context.abort(failure, "as the test wants it")

    def wait_for_steps(self, steps: set[int]) -> None:
        """Wait until these steps were asked for."""
        with self.asked:
            assert self.asked.wait_for(lambda: {request.step for request in self.requests} >= steps, timeout=10)


def column(name: str, ids: Sequence[int], width: int) -> pb.Column:
    """Return one column of the rows with these ids."""
    match name:
        case "labels":
            values, shape = [row % 2 for row in ids], (len(ids),)
        case "attention_mask":
            values, shape = [1] * (len(ids) * width), (len(ids), width)
        case "token_type_ids":
            values, shape = [0] * (len(ids) * width), (len(ids), width)
        case _:
            values, shape = [(row + position) % 40 + 1 for row in ids for position in range(width)], (len(ids), width)
    return pb.Column(name=name, data_type=pb.DATA_TYPE_INT64, shape=shape, data=array.array("q", values).tobytes())


@contextmanager
def serving(service: FakeDataService, address: str = "127.0.0.1:0") -> Iterator[str]:
    """Serve for the block; the value is host:port."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_DataServiceServicer_to_server(service, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()
