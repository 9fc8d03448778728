"""Serves the store of an attempt: short values by key, in memory, to whoever connects."""

import base64
import json
import math
import socket
import socketserver
import threading

MOST_BYTES = 1 << 20
"""Of a request or a reply; an address takes some hundred."""


class StoreServer(socketserver.ThreadingTCPServer):
    """Answers each line of JSON with one: ``{"set": key, "value": base64}`` with ``{}``, ``{"get": key,
    "limit_seconds": number}`` with ``{"value": base64}``, or with ``{}`` where nobody has set it in time."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = socket.SOMAXCONN

    def __init__(self, host: str) -> None:
        """Listen on any free port of ``host``, and on no other address.

        Raises:
            OSError: it is no address of this machine.
        """
        self.address_family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        super().__init__((str(address[0]), 0), _Connection)
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self.serve_forever, name="store", daemon=True).start()

    def set(self, key: str, value: str) -> None:
        """Tell everyone who waits for the key."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, limit_seconds: float) -> str | None:
        """Wait until someone sets the key."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, limit_seconds)
            return self._values.get(key)


class _Connection(socketserver.StreamRequestHandler):
    server: StoreServer

    def handle(self) -> None:
        """Serve one client until it goes, or says what no client of ours says."""
        try:
            while line := self.rfile.readline(MOST_BYTES):
                request = json.loads(line)
                self.wfile.write(json.dumps(self._reply(request)).encode() + b"\n")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return

    def _reply(self, request: dict[str, object]) -> dict[str, str]:
        if "set" in request:
            base64.b64decode(str(request["value"]), validate=True)
            self.server.set(str(request["set"]), str(request["value"]))
            return {}
        limit_seconds = float(str(request["limit_seconds"]))
        if not -math.inf < limit_seconds <= threading.TIMEOUT_MAX:  # a wait for NaN seconds never ends and never rests
            raise ValueError(f"limit_seconds is {limit_seconds}, need at most {threading.TIMEOUT_MAX}")
        value = self.server.get(str(request["get"]), limit_seconds)
        return {} if value is None else {"value": value}
