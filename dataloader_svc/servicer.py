"""The gRPC face of the data service: decodes, asks `Datasets`, encodes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
from takt.rpc.errors import StatusTable
from takt.v1 import data_pb2 as pb
from takt.v1 import data_pb2_grpc as pb_grpc

from dataloader_svc.encode import MESSAGE_BYTES, encode_facts, encode_microbatch, encode_step
from dataloader_svc.errors import DataServiceError, ReplacedError, RequestError, UnknownJobError
from dataloader_svc.microbatches import Microbatch
from dataloader_svc.sharding import StepRangeError
from dataloader_svc.store import Datasets, Phase

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["DataService"].full_name

STATUS: StatusTable = {
    DataServiceError: grpc.StatusCode.INVALID_ARGUMENT,  # the job or the request is wrong: do not retry
    ReplacedError: grpc.StatusCode.FAILED_PRECONDITION,  # until the former files are back
    StepRangeError: grpc.StatusCode.OUT_OF_RANGE,
    UnknownJobError: grpc.StatusCode.NOT_FOUND,
}

Context = grpc.aio.ServicerContext[Any, Any]


class DataServicer(pb_grpc.DataServiceServicer):
    """Serves one `Datasets`."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets

    async def InspectData(self, request: pb.InspectDataRequest, context: Context) -> pb.InspectDataResponse:  # noqa: N802
        """Check a spec's data section and tell what the data look like."""
        return pb.InspectDataResponse(facts=encode_facts(await self._datasets.inspect(request.spec_json)))

    async def DescribeSteps(self, request: pb.DescribeStepsRequest, context: Context) -> pb.DescribeStepsResponse:  # noqa: N802
        """Tell the shapes of consecutive steps."""
        steps = await self._datasets.describe(
            request.job,
            _phase(request.phase),
            request.split,
            first=request.first,
            count=request.count,
            digest=request.digest,
        )
        return pb.DescribeStepsResponse(steps=[encode_step(step) for step in steps])

    async def ReadStep(self, request: pb.ReadStepRequest, context: Context) -> AsyncIterator[pb.ReadStepResponse]:  # noqa: N802
        """Stream the microbatches of one step of one replica; the next message is built once the last one is taken."""
        with self._datasets.metrics.reading() as reading:
            microbatches = await self._datasets.read(
                request.job,
                _phase(request.phase),
                request.split,
                step=request.step,
                dp_rank=request.dp_rank,
                columns=request.columns,
                digest=request.digest,
            )
            messages = _messages(microbatches)
            while (message := await asyncio.to_thread(next, messages, None)) is not None:
                with reading.sending(request.dp_rank):
                    yield message


def _messages(microbatches: Iterator[Microbatch]) -> Iterator[pb.ReadStepResponse]:
    """Build the messages of a read, which takes seconds where they are as large as messages may be."""
    response, num_bytes = pb.ReadStepResponse(), 0
    for microbatch in microbatches:
        for part in encode_microbatch(microbatch):
            response.microbatches.append(part)
            num_bytes += part.ByteSize()
            if num_bytes >= MESSAGE_BYTES:
                yield response
                response, num_bytes = pb.ReadStepResponse(), 0
    if response.microbatches:
        yield response


def _phase(phase: pb.Phase) -> Phase:
    match phase:
        case pb.PHASE_TRAIN:
            return Phase.TRAIN
        case pb.PHASE_EVALUATE:
            return Phase.EVALUATE
    raise RequestError(f"phase is {phase}, need PHASE_TRAIN or PHASE_EVALUATE")
