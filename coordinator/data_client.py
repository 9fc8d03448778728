"""The coordinator's side of the data service: facts about a job's rows, and the shapes of its steps."""

import asyncio

import grpc
import grpc.aio
from takt.rpc.client import aio_channel
from takt.rpc.errors import TaktError, UnreachableError
from takt.v1 import data_pb2 as pb
from takt.v1 import data_pb2_grpc as pb_grpc

from coordinator.facts import DataFacts
from coordinator.problem import Problem, SpecError

SERVICE = pb.DESCRIPTOR.services_by_name["DataService"].full_name
CALL_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
"""How long a run waits for a data service that does not answer; it may be restarted meanwhile."""
RETRY_SECONDS = 0.5

_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class DataError(TaktError):
    """The data service cannot give what a run needs."""


class DataClient:
    """Calls one data service."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = aio_channel(address, idempotent=[f"{SERVICE}/InspectData", f"{SERVICE}/DescribeSteps"])
        self._stub = pb_grpc.DataServiceStub(self._channel)

    async def facts(self, spec_json: str, *, limit_seconds: float) -> DataFacts:
        """Return what a job's data look like.

        Raises:
            SpecError: the data section is wrong.
            UnreachableError: the service does not answer.
        """
        request = pb.InspectDataRequest(spec_json=spec_json)
        try:
            response: pb.InspectDataResponse = await self._stub.InspectData(request, timeout=limit_seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise SpecError([Problem.told("data", error.details() or "is wrong")]) from None
            raise UnreachableError(self._failure(error)) from error
        return DataFacts.of(response.facts)

    async def describe(
        self, job: str, *, phase: pb.Phase, split: str, first: int, count: int
    ) -> list[pb.StepDescription]:
        """Return shapes of consecutive steps, waiting for a service that is away.

        Raises:
            DataError: the service refuses, or stays away.
        """
        request = pb.DescribeStepsRequest(job=job, phase=phase, split=split, first=first, count=count)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                response: pb.DescribeStepsResponse = await self._stub.DescribeSteps(request, timeout=CALL_SECONDS)
                return list(response.steps)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AWAY or loop.time() > give_up_at:
                    raise DataError(self._failure(error)) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    def _failure(self, error: grpc.aio.AioRpcError) -> str:
        return f"the data service at {self.address} does not serve: {error.code().name}: {error.details()}"
