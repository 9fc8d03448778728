"""The store in which the workers of an attempt find each other's addresses."""

import base64
import json
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from stage_worker.comm_store_server import MOST_BYTES, StoreServer

if TYPE_CHECKING:  # torch.distributed exports these without telling type checkers
    from torch._C._distributed_c10d import PrefixStore, Store
else:
    from torch.distributed import PrefixStore, Store

__all__ = ["AttemptStore", "PrefixStore", "RendezvousError", "Store", "join_store", "open_store"]

_NETWORK_SECONDS = 10.0
"""How long a connection or a reply may take, beyond what was asked for."""


class RendezvousError(RuntimeError):
    """The workers of an attempt could not meet."""


class AttemptStore(Store):
    """A client of an attempt's store: as much of a store as Gloo needs to connect its members.

    torch's own ``TCPStore`` asks the name server for the name of every address that it connects to, loopback too, and
    waits for one that is silent. Keep this object while others use it: torch holds only its C++ half.
    """

    def __init__(self, address: str, *, limit_seconds: float, server: StoreServer | None = None) -> None:
        """Connect to host:port.

        Args:
            address: as ``open_store`` says it.
            limit_seconds: of every wait.
            server: lives as long as this client.

        Raises:
            RendezvousError: it does not answer in time.
        """
        super().__init__()
        host, _, port = address.rpartition(":")
        self.address = address
        self.server = server
        self._limit_seconds = limit_seconds
        self._one_at_a_time = threading.Lock()
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=min(limit_seconds, _NETWORK_SECONDS))
        except (OSError, ValueError) as error:
            raise RendezvousError(f"the rendezvous store at {address} does not answer: {error}") from error
        self._replies = self._socket.makefile("rb")

    def set(self, key: str, value: bytes | str) -> None:
        """Set a key; torch itself says bytes.

        Raises:
            RendezvousError: the store is gone.
        """
        content = value.encode() if isinstance(value, str) else value
        self._ask({"set": key, "value": base64.b64encode(content).decode()}, limit_seconds=0)

    def get(self, key: str) -> bytes:
        """Return what was set; waits for it.

        Raises:
            RendezvousError: nobody set it in time, or the store is gone.
        """
        return self._get(key, self._limit_seconds)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are set.

        Raises:
            RendezvousError: as for ``get``.
        """
        for key in keys:
            self._get(key, self._limit_seconds if timeout is None else timeout.total_seconds())

    def _get(self, key: str, limit_seconds: float) -> bytes:
        reply = self._ask({"get": key, "limit_seconds": limit_seconds}, limit_seconds=limit_seconds)
        if "value" not in reply:
            raise RendezvousError(f"nobody set {key} in the rendezvous store at {self.address} in {limit_seconds:g} s")
        return base64.b64decode(reply["value"])

    def _ask(self, request: dict[str, str | float], *, limit_seconds: float) -> dict[str, str]:
        with self._one_at_a_time:
            try:
                self._socket.settimeout(limit_seconds + _NETWORK_SECONDS)
                self._socket.sendall(json.dumps(request).encode() + b"\n")
                reply: dict[str, str] = json.loads(self._replies.readline(MOST_BYTES))
            except (OSError, ValueError) as error:
                raise RendezvousError(f"the rendezvous store at {self.address} is gone: {error}") from error
        return reply


def open_store(host: str, *, limit_seconds: float) -> AttemptStore:
    """Return a store that listens on any free port of ``host``, and on no other address.

    Args:
        host: address of this machine that the other workers reach.
        limit_seconds: of every wait.

    Raises:
        RendezvousError: ``host`` is no address of this machine.
    """
    try:
        server = StoreServer(host)
    except OSError as error:
        raise RendezvousError(f"cannot listen on {host}, which other workers are told to use: {error}") from error
    return AttemptStore(f"{host}:{server.server_address[1]}", limit_seconds=limit_seconds, server=server)


def join_store(address: str, *, limit_seconds: float) -> AttemptStore:
    """Return a client of the store at host:port.

    Args:
        address: of an opened store.
        limit_seconds: of every wait.

    Raises:
        RendezvousError: it does not answer in time.
    """
    return AttemptStore(address, limit_seconds=limit_seconds)
