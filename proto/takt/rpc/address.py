"""Addresses to listen on: ``HOST:PORT``, port 0 for any free one."""

import errno
import ipaddress
import socket
from dataclasses import dataclass

from takt.rpc.errors import AddressInUseError, ListenError, TaktError


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen."""

    host: str
    """As it was given."""
    numeric: str
    """The one address to bind; a name may mean several, of which some may be taken."""
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.numeric).is_loopback

    def at(self, port: int) -> str:
        """Return ``host:port`` with another port."""
        return join(self.host, port)

    def check_free(self) -> None:
        """Bind it for a moment, because gRPC does not tell why it could not.

        Raises:
            AddressInUseError: another process listens there.
            ListenError: it cannot be bound for another reason.
        """
        family = socket.AF_INET6 if ":" in self.numeric else socket.AF_INET
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self.numeric, self.port))
                probe.listen()
        except OSError as error:
            raise listen_failure(self.at(self.port), error) from error


def listen_failure(address: str, error: OSError) -> TaktError:
    """Return the error to raise for a failed bind of ``address``."""
    if error.errno == errno.EADDRINUSE:
        return AddressInUseError(
            f"address in use: another process listens on {address}; stop it, or choose another port (0 takes any)"
        )
    return ListenError(f"cannot listen on {address}: {error.strerror or error}")


def parse_listen(listen: str, *, insecure: bool = False) -> ListenAddress:
    """Read ``HOST:PORT`` and look the host up; IPv4 is preferred where a name has both.

    Raises:
        ListenError: it is malformed, the host is unknown, or others can reach it and ``insecure`` is not set.
    """
    host, separator, text = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise ListenError(f"listen address is {listen!r}, need HOST:PORT with a port from 0 to 65535")
    try:
        infos = socket.getaddrinfo(host, int(text), type=socket.SOCK_STREAM)
    except OSError as error:
        raise ListenError(f"listen address is {listen!r}, but its host is not known here: {error}") from error
    numeric = str(min(infos, key=lambda info: info[0] != socket.AF_INET)[4][0])
    address = ListenAddress(host=host, numeric=numeric, port=int(text))
    if not address.is_loopback and not insecure:
        raise ListenError(
            f"listen address {listen!r} can be reached from other machines, and nothing protects it; "
            "listen on 127.0.0.1, or pass --insecure to accept that"
        )
    return address


def join(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
