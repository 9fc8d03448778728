"""A small HTTP endpoint for Prometheus and for probes, and the metrics that every service has."""

import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import grpc
from prometheus_client import CollectorRegistry, Counter, Info, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from takt.rpc.address import ListenAddress, join, listen_failure, parse_listen
from takt.rpc.interceptor import OnHandled

Ready = Callable[[], tuple[bool, str]]
"""Whether the service can do its work, and why or why not, for a person."""

_TEXT = "text/plain; charset=utf-8"


class HttpEndpoint:
    """Serves /metrics, /livez and /readyz from a daemon thread."""

    def __init__(self, registry: CollectorRegistry, *, host: str, port: int, ready: Ready) -> None:
        self._registry = registry
        self._ready = ready
        self._listen = join(host, port)
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> str:
        """Listen and return host:port.

        Raises:
            ListenError: the host is not known here.
            AddressInUseError: another process listens there.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else every counter is two series
        # Whether others may reach this host was decided where the service's own address was read.
        address = parse_listen(self._listen, insecure=True)
        try:
            self._server = _Server(address, _handler(self._registry, self._ready))
        except OSError as error:
            raise listen_failure(self._listen, error) from error
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="http-endpoint", daemon=True).start()
        return address.at(self._server.server_port)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def rpc_counter(registry: CollectorRegistry) -> OnHandled:
    """Return what counts ended calls as takt_rpc_server_handled_total{method,code}."""
    counter = Counter("takt_rpc_server_handled", "RPCs that ended.", ["method", "code"], registry=registry)

    def on_handled(method: str, code: grpc.StatusCode) -> None:
        counter.labels(method=method, code=code.name).inc()

    return on_handled


def build_info(registry: CollectorRegistry, version: str) -> None:
    """Add takt_build_info{version}."""
    Info("takt_build", "The version that runs.", registry=registry).info({"version": version})


class _Server(ThreadingHTTPServer):
    def __init__(self, address: ListenAddress, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.numeric else socket.AF_INET
        super().__init__((address.numeric, address.port), handler)

    def server_bind(self) -> None:
        """Bind without the look-up of the host's full name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


def _handler(registry: CollectorRegistry, ready: Ready) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds that a silent client keeps a thread

        def do_GET(self) -> None:
            match urlsplit(self.path).path:
                case "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(200, encode(registry), content_type)
                case "/livez":
                    self._answer(200, b"alive\n", _TEXT)
                case "/readyz":
                    is_ready, reason = ready()
                    self._answer(200 if is_ready else 503, f"{reason}\n".encode(), _TEXT)
                case _:
                    self._answer(404, b"not found; there are /metrics, /livez and /readyz\n", _TEXT)

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a scrape is no event."""

    return Handler
