"""A gRPC server with everything that every service of this project must have."""

from collections.abc import Callable, Sequence

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from takt.rpc.address import join, parse_listen
from takt.rpc.errors import ListenError, StatusTable
from takt.rpc.interceptor import EdgeInterceptor, OnHandled
from takt.rpc.limits import SERVER_OPTIONS


class RunningServer:
    """A server that accepts calls."""

    def __init__(
        self, server: grpc.aio.Server, healthiness: health.aio.HealthServicer, *, address: str, services: Sequence[str]
    ) -> None:
        self.address = address
        """Where it listens, host:port, the port as it was bound."""
        self._server = server
        self._health = healthiness
        self._services = ("", *services)

    async def set_serving(self, serving: bool) -> None:
        """Tell health checks whether calls are welcome; they are from the start."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in self._services:
            await self._health.set(service, status)

    async def stop(self, grace_seconds: float) -> None:
        """Take no new calls, give those in progress ``grace_seconds``, then cancel them."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_seconds)


async def serve(
    listen: str,
    *,
    add: Callable[[grpc.aio.Server], None],
    services: Sequence[str],
    status: StatusTable,
    insecure: bool = False,
    on_handled: OnHandled | None = None,
) -> RunningServer:
    """Start a server and return when it accepts calls.

    Args:
        listen: host:port; port 0 takes any free one.
        add: registers the servicers.
        services: full names of what ``add`` registers, for health checks and reflection.
        status: code of each error type that handlers may raise.
        insecure: accept a host that other machines can reach.
        on_handled: told of every call that ended.

    Raises:
        ListenError: the address is malformed or not allowed.
        AddressInUseError: another process listens there.
    """
    address = parse_listen(listen, insecure=insecure)
    address.check_free()
    server = grpc.aio.server(interceptors=[EdgeInterceptor(status, on_handled)], options=SERVER_OPTIONS)
    add(server)
    healthiness = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthiness, server)
    reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = server.add_insecure_port(join(address.numeric, address.port))
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {listen}: {error}") from error
    await server.start()
    running = RunningServer(server, healthiness, address=address.at(port), services=services)
    await running.set_serving(True)
    return running
