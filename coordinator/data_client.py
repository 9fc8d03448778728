"""The coordinator's side of the data service: facts about a job's rows, and the shapes of its steps."""

import asyncio

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from takt.rpc.client import aio_channel
from takt.rpc.errors import TaktError, UnreachableError
from takt.v1 import data_pb2 as pb
from takt.v1 import data_pb2_grpc as pb_grpc

from coordinator.facts import DataFacts
from coordinator.problem import Problem, SpecError

SERVICE = pb.DESCRIPTOR.services_by_name["DataService"].full_name
CALL_SECONDS = 5.0
PROBE_SECONDS = 2.0
PATIENCE_SECONDS = 60.0
"""How long a run waits for a data service that gives no sign of life; it may be restarted meanwhile."""
LOADING_SECONDS = 300.0
"""How long a run waits for one that lives and has no answer yet: to tokenise a large split takes minutes."""
RETRY_SECONDS = 0.5

_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

_log = structlog.get_logger()


class DataError(TaktError):
    """The data service cannot give what a run needs."""


class DataClient:
    """Calls one data service."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = aio_channel(address, idempotent=[f"{SERVICE}/InspectData", f"{SERVICE}/DescribeSteps"])
        self._stub = pb_grpc.DataServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

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
        self, job: str, *, phase: pb.Phase, split: str, digest: str, first: int, count: int
    ) -> list[pb.StepDescription]:
        """Return shapes of consecutive steps, waiting for a service that is away or loads their split.

        Raises:
            DataError: the service refuses, for instance because its rows of the split have not this digest, which is
                empty where any may be had; it stays away, or loads for too long.
        """
        request = pb.DescribeStepsRequest(job=job, phase=phase, split=split, digest=digest, first=first, count=count)
        loop = asyncio.get_running_loop()
        began = alive_at = loop.time()
        is_told = False
        while True:
            try:
                response: pb.DescribeStepsResponse = await self._stub.DescribeSteps(request, timeout=CALL_SECONDS)
                return list(response.steps)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AWAY:
                    raise DataError(self._failure(error)) from error
                reason = self._failure(error)
            if await self._is_alive():
                alive_at = loop.time()
            what = f"{split} steps from {first} of job {job}"
            if not is_told:
                is_told = True
                _log.warning("a run waits for the data service", job=job, steps=what, reason=reason)
            if loop.time() - alive_at > PATIENCE_SECONDS:
                raise DataError(f"{reason}; it gave no sign of life for {PATIENCE_SECONDS:g} s, asked for {what}")
            if loop.time() - began > LOADING_SECONDS:
                raise DataError(f"{reason}; it lives, but has not described {what} in {LOADING_SECONDS:g} s")
            await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def _is_alive(self) -> bool:
        """Whether the service answers what takes it no time."""
        try:
            await self._health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=PROBE_SECONDS)
        except grpc.aio.AioRpcError as error:
            return error.code() not in _AWAY
        return True

    def _failure(self, error: grpc.aio.AioRpcError) -> str:
        return f"the data service at {self.address} does not serve: {error.code().name}: {error.details()}"
