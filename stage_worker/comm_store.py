"""The store in which the workers of an attempt find each other's addresses."""

import socket
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch.distributed exports these without telling type checkers
    from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
else:
    from torch.distributed import PrefixStore, Store, TCPStore

__all__ = ["PrefixStore", "RendezvousError", "Store", "TCPStore", "address_of", "join_store", "open_store"]


class RendezvousError(RuntimeError):
    """The workers of an attempt could not meet."""


def open_store(host: str) -> TCPStore:
    """Return a store that listens on any free port of ``host``, and on no other address.

    Raises:
        RendezvousError: ``host`` is no address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        raise RendezvousError(f"cannot listen on {host}, which other workers are told to use: {error}") from error
    port = listener.getsockname()[1]
    # The store owns the socket from here on: the port is never free in between.
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def address_of(store: TCPStore) -> str:
    """Return host:port of a store."""
    return f"{store.host}:{store.port}"


def join_store(address: str, *, limit_seconds: float) -> TCPStore:
    """Return a client of the store at host:port.

    Raises:
        RendezvousError: it does not answer in time.
    """
    host, _, port = address.rpartition(":")
    try:
        return TCPStore(
            host, int(port), is_master=False, wait_for_workers=False, timeout=timedelta(seconds=limit_seconds)
        )
    except (RuntimeError, ValueError) as error:
        raise RendezvousError(f"the rendezvous store at {address} does not answer: {error}") from error
